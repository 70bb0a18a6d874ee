#include "tempera/text/pipeline.h"

#include <initializer_list>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/unicode.h"

namespace tempera::text {

void TokenizerParts::add_token(AddedToken token) {
  const auto known = vocabulary.find(token.content);
  TEMPERA_CHECK(!known || *known == token.id, "the added token '", token.content, "' has the id ",
                token.id, ", and ", *known, " in the vocabulary");
  const bool taken = !known && token.id >= 0 && token.id < vocabulary.size() &&
                     !vocabulary.piece(token.id).empty();
  TEMPERA_CHECK(!taken, "the added token '", token.content, "' has the id ", token.id,
                ", which is '", vocabulary.piece(token.id), "' in the vocabulary");
  token.outside_model |= !known;
  vocabulary.add(token.content, token.id);
  added.push_back(std::move(token));
}

std::function<bool(int32_t)> TokenizerParts::never() const {
  std::unordered_set<int32_t> ids;
  for (const auto& token : added)
    if (token.special || token.outside_model) ids.insert(token.id);
  return [ids = std::move(ids)](int32_t id) { return ids.contains(id); };
}

void TokenizerParts::guess_special() {
  using Names = std::initializer_list<const char*>;
  const auto fill = [this](std::optional<int32_t>& id, Names names) {
    for (const char* name : names)
      if (!id) id = vocabulary.find(name);
  };
  fill(special.begin_of_text, {"<s>", "<|begin_of_text|>", "<bos>", "[CLS]"});
  fill(special.end_of_text, {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]"});
  fill(special.pad, {"<pad>", "[PAD]", "<|pad|>", "<|padding|>"});
  fill(special.mask, {"<mask>", "[MASK]"});
  fill(special.unknown, {"<unk>", "[UNK]"});
}

namespace {

// Two tokenizers with the same pieces have the same name.
std::string fingerprint(const TokenizerParts& parts) {
  uint64_t hash = 0xCBF29CE484222325U;
  const auto mix = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    hash = (hash ^ 0xFF) * 0x100000001B3U;  // no UTF-8 has this byte
  };
  for (int32_t id = 0; id < parts.vocabulary.size(); ++id) mix(parts.vocabulary.piece(id));
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash >> shift & 15];
  return concat(parts.kind, "-", parts.vocabulary.size(), "-", digits);
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts)
      : parts_(std::move(parts)), name_(fingerprint(parts_)) {
    special_ids_.resize(static_cast<size_t>(parts_.vocabulary.size()));
    for (const AddedToken& token : parts_.added) {
      (token.normalized ? normalized_finder_ : finder_).add(token);
      if (token.special) special_ids_[static_cast<size_t>(token.id)] = true;
    }
  }

  std::string name() const override { return name_; }
  int64_t vocabulary() const override { return parts_.vocabulary.size(); }
  SpecialTokens special() const override { return parts_.special; }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocabulary() && special_ids_[static_cast<size_t>(id)];
  }
  std::string piece(int32_t id) const override {
    check_id(id);
    return parts_.vocabulary.piece(id);
  }
  std::optional<int32_t> find(std::string_view piece) const override {
    return parts_.vocabulary.find(piece);
  }

 private:
  // Lends one encoding its memory and takes it back: the cache in it is worth keeping.
  class Loan {
   public:
    explicit Loan(const PipelineTokenizer& owner) : owner_(owner) {
      const std::lock_guard lock(owner_.mutex_);
      if (owner_.idle_.empty()) {
        scratch_ = std::make_unique<Scratch>();
      } else {
        scratch_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    ~Loan() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.idle_.push_back(std::move(scratch_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    const PipelineTokenizer& owner_;
    std::unique_ptr<Scratch> scratch_;
  };

  void encode_text(std::string_view text, EncodeOptions options,
                   std::vector<int32_t>& ids) const override {
    if (!is_valid_utf8(text)) {
      encode_text(valid_utf8(text), options, ids);
      return;
    }
    const Loan loan(*this);
    if (options.add_special) ids.insert(ids.end(), parts_.before.begin(), parts_.before.end());
    std::vector<Segment> segments;
    finder_.find(text, options.parse_special, segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_segment(text.substr(segment.range.begin, segment.range.end - segment.range.begin),
                       segment.range.begin == 0, options, *loan, ids);
      }
    }
    if (options.add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  }

  void encode_segment(std::string_view text, bool at_start, EncodeOptions options, Scratch& scratch,
                      std::vector<int32_t>& ids) const {
    std::string_view normalized = text;
    if (!parts_.normalizers.empty()) {
      scratch.text = text;
      for (const auto& normalizer : parts_.normalizers) normalizer->apply(scratch.text);
      normalized = scratch.text;
    }
    std::vector<Segment> segments;
    normalized_finder_.find(normalized, options.parse_special, segments);
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      const auto [begin, end] = segment.range;
      scratch.pieces.reset(normalized.substr(begin, end - begin), at_start && begin == 0);
      for (const auto& step : parts_.pre_tokenizers) step->apply(scratch.pieces);
      for (const Range& range : scratch.pieces.ranges)
        parts_.model->encode(scratch.pieces.piece(range), scratch, ids);
    }
  }

  void decode_ids(std::span<const int32_t> ids, SpecialText specials,
                  std::string& text) const override {
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const int32_t id : ids) {
      check_id(id);
      if (specials == SpecialText::kSkip && is_special(id)) continue;
      if (const auto& piece = parts_.vocabulary.piece(id); !piece.empty()) pieces.push_back(piece);
    }
    for (const auto& decoder : parts_.decoders) decoder->apply(pieces);
    for (const auto& piece : pieces) text += piece;
  }

  TokenizerParts parts_;
  std::string name_;
  AddedTokenFinder finder_, normalized_finder_;
  std::vector<bool> special_ids_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts) {
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace tempera::text
