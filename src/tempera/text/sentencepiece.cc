#include "tempera/text/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/bpe.h"
#include "tempera/text/charsmap.h"
#include "tempera/text/trie.h"
#include "tempera/text/unicode.h"
#include "tempera/text/unigram.h"

namespace tempera::text {
namespace {

using Type = SentencePieceModel::Type;
constexpr double kUnknownPenalty = 10;

constexpr size_t kLongestPiece = 512;  // bytes; the ways to join a piece grow with its square

void append_escaped(std::string_view text, std::string& result) {
  for (const char c : text) {
    if (c == ' ')
      result += kBlankMark;
    else
      result += c;
  }
}

std::string escaped(std::string_view text) {
  std::string result;
  append_escaped(text, result);
  return result;
}

// Rules, white space and the prefix, as sentencepiece has them: the longest rule at each place, and
// symbols of the user unchanged.
class SentencePieceNormalizer final : public Normalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceModel& model)
      : prefix_(model.add_dummy_prefix), squeeze_(model.remove_extra_whitespaces) {
    if (!model.charsmap.empty()) rules_.emplace(model.charsmap);
    for (const auto& piece : model.pieces)
      if (piece.type == Type::kUserDefined) symbols_.add(piece.text, 0);
  }

  void apply(std::string& text) const override {
    std::string_view left = text;
    std::string result;
    result.reserve(text.size() + text.size() / 4);
    while (squeeze_ && !left.empty()) {
      const Step step = take(left);
      if (step.result != " ") break;
      left.remove_prefix(step.size);
    }
    if (left.empty()) {
      text.clear();
      return;
    }
    if (prefix_) result += kBlankMark;
    bool after_space = squeeze_;
    while (!left.empty()) {
      Step step = take(left);
      left.remove_prefix(step.size);
      while (after_space && step.result.starts_with(' ')) step.result.remove_prefix(1);
      if (!step.result.empty()) {
        after_space = squeeze_ && step.result.ends_with(' ');
        append_escaped(step.result, result);
      }
    }
    while (squeeze_ && result.ends_with(kBlankMark))
      result.resize(result.size() - kBlankMark.size());
    text = std::move(result);
  }

 private:
  struct Step {
    size_t size = 0;
    std::string_view result;
  };

  Step take(std::string_view text) const {
    if (const Trie::Match symbol = symbols_.longest(text); symbol.size > 0)
      return {symbol.size, text.substr(0, symbol.size)};
    if (rules_) {
      if (const CharsMap::Rule rule = rules_->longest(text); rule.size > 0)
        return {rule.size, rule.result};
    }
    const size_t size = character_at(text, 0).size;
    return {size, text.substr(0, size)};
  }

  bool prefix_, squeeze_;
  std::optional<CharsMap> rules_;
  Trie symbols_;
};

bool is_model_piece(Type type) {
  return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
}

std::unique_ptr<Model> make_unigram(const SentencePieceModel& model, int32_t unknown,
                                    const Vocabulary& vocabulary,
                                    const std::function<bool(int32_t)>& never) {
  std::vector<double> scores;
  double least = std::numeric_limits<double>::max();
  for (const auto& piece : model.pieces) {
    scores.push_back(static_cast<double>(piece.score));
    if (piece.type == Type::kNormal) least = std::min(least, scores.back());
  }
  const auto score = static_cast<float>(least) - static_cast<float>(kUnknownPenalty);
  return std::make_unique<Unigram>(vocabulary, std::move(scores),
                                   UnigramOptions{.unknown = unknown,
                                                  .byte_fallback = model.byte_fallback,
                                                  .unknown_score = static_cast<double>(score),
                                                  .single_precision = true},
                                   never);
}

std::optional<int32_t> id_in(int64_t id, const SentencePieceModel& model) {
  if (id < 0 || id >= static_cast<int64_t>(model.pieces.size())) return {};
  return static_cast<int32_t>(id);
}

void add_pieces(const SentencePieceModel& model, TokenizerParts& parts) {
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    TEMPERA_CHECK(!piece.text.empty() && piece.text.size() <= kLongestPiece, "piece ", i,
                  " of the sentencepiece model has ", piece.text.size(), " bytes; 1 to ",
                  kLongestPiece, " are possible");
    TEMPERA_CHECK(std::isfinite(piece.score), "piece ", i,
                  " of the sentencepiece model has a score that is no number");
    parts.vocabulary.add(piece.text, id);
    if (piece.type == Type::kUnknown) {
      TEMPERA_CHECK(!parts.special.unknown, "the sentencepiece model has two unknown pieces, ",
                    parts.special.unknown.value_or(0), " and ", id);
      parts.special.unknown = id;
    }
    const bool special = piece.type == Type::kControl || piece.type == Type::kUnknown;
    if (special || piece.type == Type::kUserDefined) {
      parts.added.push_back({.content = piece.text,
                             .id = id,
                             .special = special,
                             .normalized = !special,
                             .pattern = escaped(piece.text)});
    }
  }
}

}  // namespace

std::vector<BpeMerge> sentencepiece_merges(const SentencePieceModel& model) {
  std::map<float, uint32_t, std::greater<>> ranks;
  IdMap ids;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (!is_model_piece(piece.type)) continue;
    ids[piece.text] = static_cast<int32_t>(id);
    ranks[piece.score] = 0;
  }
  uint32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  std::vector<BpeMerge> merges;
  for (const auto& [text, id] : ids) {
    const auto& piece = model.pieces[static_cast<size_t>(id)];
    if (piece.type == Type::kUserDefined) continue;  // found before the model
    for (size_t at = 1; at < text.size(); ++at) {
      const auto left = ids.find(std::string_view(text).substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(std::string_view(text).substr(at));
      if (right == ids.end()) continue;
      merges.push_back({left->second, right->second, id, ranks[piece.score]});
    }
  }
  return merges;
}

TokenizerParts sentencepiece_parts(const SentencePieceModel& model) {
  TokenizerParts parts;
  add_pieces(model, parts);
  TEMPERA_CHECK(parts.special.unknown, "the sentencepiece model has no unknown piece");
  // Bytes and what the model is not to use are no results of merges or scores.
  std::vector<bool> excluded;
  for (const auto& piece : model.pieces) excluded.push_back(piece.type != Type::kNormal);
  const auto never = [&](int32_t id) { return excluded[static_cast<size_t>(id)]; };

  parts.normalizers.push_back(std::make_unique<SentencePieceNormalizer>(model));
  if (model.algorithm == SentencePieceModel::Algorithm::kBpe) {
    parts.kind = "bpe";
    parts.model = std::make_unique<Bpe>(parts.vocabulary, sentencepiece_merges(model),
                                        BpeOptions{.unknown = parts.special.unknown,
                                                   .fuse_unknown = true,
                                                   .byte_fallback = model.byte_fallback},
                                        never);
  } else {
    parts.kind = "unigram";
    parts.model = make_unigram(model, *parts.special.unknown, parts.vocabulary, never);
  }
  parts.decoders.push_back(replace_decoder(Pattern::literal(std::string(kBlankMark)), " "));
  parts.decoders.push_back(byte_fallback_decoder());
  parts.decoders.push_back(fuse_decoder());
  if (model.add_dummy_prefix) parts.decoders.push_back(strip_decoder(" ", 1, 0));

  parts.special.begin_of_text = id_in(model.begin_id, model);
  parts.special.end_of_text = id_in(model.end_id, model);
  parts.special.pad = id_in(model.pad_id, model);
  if (model.add_begin && parts.special.begin_of_text)
    parts.before.push_back(*parts.special.begin_of_text);
  if (model.add_end && parts.special.end_of_text) parts.after.push_back(*parts.special.end_of_text);
  return parts;
}

}  // namespace tempera::text
