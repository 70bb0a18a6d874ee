#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::text {

// The ids with a part of their own, where the tokenizer has them.
struct SpecialTokens {
  std::optional<int32_t> begin_of_text = {};
  std::optional<int32_t> end_of_text = {};
  std::optional<int32_t> pad = {};
  std::optional<int32_t> mask = {};
  std::optional<int32_t> unknown = {};
};

struct EncodeOptions {
  // What the tokenizer puts around a text: begin, end, separators, as its files state.
  bool add_special = false;
  // A special token that the text spells becomes its id. Without this, text never gives a special
  // token, whatever it spells: what users type must not steer a model.
  bool parse_special = false;
};

enum class SpecialText { kSkip, kShow };

// Safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Names the mapping from text to ids: token shards with this name can be mixed.
  virtual std::string name() const = 0;
  // Ids are below it.
  virtual int64_t vocabulary() const = 0;
  virtual SpecialTokens special() const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // What the vocabulary calls the id; as text, that is decode's. Empty for a hole in the
  // vocabulary.
  virtual std::string piece(int32_t id) const = 0;
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;

  // Appends the ids of the text.
  void encode(std::string_view text, std::vector<int32_t>& ids, EncodeOptions options = {}) const {
    encode_text(text, options, ids);
  }
  // Appends the bytes of the ids; an id may be a part of a UTF-8 character.
  void decode(std::span<const int32_t> ids, std::string& text,
              SpecialText specials = SpecialText::kSkip) const {
    decode_ids(ids, specials, text);
  }

 protected:
  // Throws for an id that is not in the vocabulary.
  void check_id(int32_t id) const;

 private:
  virtual void encode_text(std::string_view text, EncodeOptions options,
                           std::vector<int32_t>& ids) const = 0;
  virtual void decode_ids(std::span<const int32_t> ids, SpecialText specials,
                          std::string& text) const = 0;
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
    return {
        .begin_of_text = {}, .end_of_text = kEndOfText, .pad = kPad, .mask = kMask, .unknown = {}};
  }
  bool is_special(int32_t id) const override { return id >= 256 && id < kVocabulary; }
  // A byte is <0x41>, as in vocabularies with a byte fallback.
  std::string piece(int32_t id) const override;
  std::optional<int32_t> find(std::string_view piece) const override;

 private:
  void encode_text(std::string_view text, EncodeOptions options,
                   std::vector<int32_t>& ids) const override;
  void decode_ids(std::span<const int32_t> ids, SpecialText specials,
                  std::string& text) const override;
};

}  // namespace tempera::text
