#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/unicode.h"

// Python's view of text, over UTF-8 that was checked before: positions count code points.
namespace tempera::text::jinja {

// The code point at `at`, which moves behind it.
inline char32_t next_code_point(std::string_view text, size_t& at) {
  const Character character = character_at(text, at);
  at += character.size;
  return character.code;
}

// In code points.
size_t text_length(std::string_view text);
// The code points, each as its bytes.
std::vector<std::string_view> characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// Without blanks, or without any of `chars`, at the ends.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);

// At most `limit` cuts, from the left or from the right; -1 for all. Without a separator, at runs
// of blanks.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// The first `limit` of them; all if it is negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);

// Text is refused where the case of a letter depends on its neighbours or changes its length:
// beyond ASCII for upper, capitalize and title, the Greek sigma and the dotted I for lower.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
// The first letter of every run of letters.
std::string title(std::string_view text);
// The first character of every part between blanks and opening brackets: Jinja's filter.
std::string title_words(std::string_view text);

std::string escape_html(std::string_view text);

// As repr() prints them.
std::string repr(std::string_view text);
std::string repr(double value);

// In double quotes, as json.dumps prints it.
std::string json_quote(std::string_view text, bool ascii_only);

}  // namespace tempera::text::jinja
