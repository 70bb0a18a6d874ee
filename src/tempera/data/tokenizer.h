#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::data {

struct SpecialTokens {
  std::optional<int32_t> end_of_text;
  std::optional<int32_t> pad;
  std::optional<int32_t> mask;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Names the mapping from text to ids: token shards with this name can be mixed.
  virtual std::string name() const = 0;
  // Ids are below it.
  virtual int64_t vocabulary() const = 0;
  virtual SpecialTokens special() const = 0;
  // Appends the ids of the text. Text never gives a special token, whatever it spells.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the bytes of the ids; an id may be a part of a UTF-8 character. Special tokens give
  // none.
  virtual void decode(std::span<const int32_t> ids, std::string& text) const = 0;
};

// Every byte is its own id, so that any text works with nothing else.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEndOfText = 256;
  static constexpr int32_t kPad = 257;
  static constexpr int32_t kMask = 258;
  static constexpr int64_t kVocabulary = 259;

  std::string name() const override { return "bytes"; }
  int64_t vocabulary() const override { return kVocabulary; }
  SpecialTokens special() const override {
    return {.end_of_text = kEndOfText, .pad = kPad, .mask = kMask};
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void decode(std::span<const int32_t> ids, std::string& text) const override;
};

}  // namespace tempera::data
