#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::text {

namespace jinja {
struct Document;
}

// Templates come with models, so they are as hostile as any file.
struct TemplateLimits {
  size_t source_bytes = size_t{1} << 20;
  size_t output_bytes = size_t{1} << 26;
  int64_t steps = 20'000'000;  // an evaluated node, a visited item or 16 bytes of text made: one
};

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct RenderOptions {
  std::optional<std::tm> now = {};  // what strftime_now formats; the local time if absent
};

struct Rendered {
  std::string text;
  std::vector<TextSpan> generated;  // what {% generation %} blocks gave
};

// The part of the Jinja language that chat templates use, with the settings and the additions that
// they are written for: a block tag takes the newline after it and the blanks before it, values are
// immutable, JSON is not escaped for HTML. The bytes are those that Jinja gives. What is not
// supported is refused by name when the template is read, or, if it depends on values, when it is
// rendered. docs/reference/chat.md lists what there is.
//
// Safe to use from several threads at once.
class Template {
 public:
  // `name` stands before each message.
  Template(std::string_view source, std::string name, TemplateLimits limits = {});

  // The variables are an object; its order, and that of the objects in it, is kept.
  Rendered render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::string name_;
  TemplateLimits limits_;
  std::shared_ptr<const jinja::Document> document_;
};

}  // namespace tempera::text
