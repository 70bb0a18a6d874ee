#include "tempera/text/charsmap.h"

#include <cstring>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

constexpr size_t kShortGrapheme = 6;  // bytes; longer ones are looked up by character

// The fields of a unit of the trie.
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (0x80000000U | 0xFFU); }
size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1U << 9)) >> 6); }

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(CharsMap rules) : rules_(std::move(rules)) {}

  void apply(std::string& text) const override {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (stands_alone(text, at) && rules_.is_plain(text[at])) {
        result += text[at++];
        continue;
      }
      const size_t end = grapheme_end(text, at);
      const std::string_view grapheme = std::string_view(text).substr(at, end - at);
      at = end;
      if (grapheme.size() < kShortGrapheme && replace(grapheme, result)) continue;
      for (size_t i = 0; i < grapheme.size();) {
        const std::string_view one = grapheme.substr(i, character_at(grapheme, i).size);
        if (!replace(one, result)) result += one;
        i += one.size();
      }
    }
    text = std::move(result);
  }

 private:
  // An ASCII character before another is a grapheme, but for the two of a line end.
  static bool stands_alone(std::string_view text, size_t at) {
    const auto ascii = [&](size_t i) {
      return i >= text.size() || static_cast<unsigned char>(text[i]) < 0x80;
    };
    return ascii(at) && ascii(at + 1) && text[at] != '\r';
  }
  bool replace(std::string_view part, std::string& result) const {
    const CharsMap::Rule rule = rules_.shortest(part);
    result += rule.result;
    return rule.size > 0;
  }

  CharsMap rules_;
};

}  // namespace

CharsMap::CharsMap(std::string_view blob) {
  uint32_t size = 0;
  TEMPERA_CHECK(blob.size() > sizeof(size), "a precompiled character map of ", blob.size(),
                " bytes is cut off");
  std::memcpy(&size, blob.data(), sizeof(size));
  blob.remove_prefix(sizeof(size));
  TEMPERA_CHECK(size <= blob.size() && size % 4 == 0 && size > 0,
                "a precompiled character map states a trie of ", size, " bytes; ", blob.size(),
                " are there");
  units_.resize(size / 4);
  std::memcpy(units_.data(), blob.data(), size);
  results_ = blob.substr(size);
  TEMPERA_CHECK(is_valid_utf8(results_),
                "a precompiled character map gives text that is not UTF-8");
  for (size_t c = 0; c < 128; ++c) {
    const char one = static_cast<char>(c);
    plain_[c] = shortest(std::string_view(&one, 1)).size == 0;
  }
}

CharsMap::Rule CharsMap::find(std::string_view text, bool longest) const {
  Rule rule;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_value(unit)) continue;
    TEMPERA_CHECK(node < units_.size() && (units_[node] & 0x7FFFFFFFU) < results_.size(),
                  "a precompiled character map points outside of itself");
    const char* result = results_.c_str() + (units_[node] & 0x7FFFFFFFU);
    rule = {i + 1, result};
    if (!longest) break;
  }
  TEMPERA_CHECK(is_valid_utf8(rule.result), "a precompiled character map points into a character");
  return rule;
}

std::unique_ptr<Normalizer> precompiled_normalizer(CharsMap rules) {
  return std::make_unique<Precompiled>(std::move(rules));
}

}  // namespace tempera::text
