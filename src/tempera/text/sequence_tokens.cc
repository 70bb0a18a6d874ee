#include "tempera/text/sequence_tokens.h"

#include <optional>

#include "tempera/base/error.h"

namespace tempera::text {
namespace {

// As many as T5's vocabularies have.
constexpr int64_t kSentinels = 100;

}  // namespace

SequenceTokens::SequenceTokens(const Tokenizer& tokenizer) : vocabulary(tokenizer.vocabulary()) {
  const auto own = tokenizer.special();
  const auto id = [](std::optional<int32_t> given, int64_t& next) {
    return given ? *given : next++;
  };
  pad = id(own.pad, vocabulary);
  end = id(own.end_of_text, vocabulary);
  mask = id(own.mask, vocabulary);
  start = pad;
  vocabulary_of_spans = vocabulary;
  for (int64_t i = 0; i < kSentinels; ++i)
    sentinels.push_back(id(tokenizer.find(concat("<extra_id_", i, ">")), vocabulary_of_spans));
  special.resize(static_cast<size_t>(vocabulary_of_spans), true);
  for (int32_t token = 0; token < tokenizer.vocabulary(); ++token)
    special[static_cast<size_t>(token)] = tokenizer.is_special(token);
  for (const int64_t token : {pad, end, mask}) special[static_cast<size_t>(token)] = true;
  for (const int64_t token : sentinels) special[static_cast<size_t>(token)] = true;
}

std::vector<int64_t> encode_sequence(const Tokenizer& tokenizer, const SequenceTokens& ids,
                                     std::string_view text) {
  std::vector<int32_t> encoded;
  tokenizer.encode(text, encoded, {.add_special = true, .parse_special = false});
  std::vector<int64_t> tokens(encoded.begin(), encoded.end());
  if (tokens.empty() || tokens.back() != ids.end) tokens.push_back(ids.end);
  return tokens;
}

void cut_sequence(std::vector<int64_t>& tokens, int64_t length) {
  if (static_cast<int64_t>(tokens.size()) <= length) return;
  const int64_t last = tokens.back();
  tokens.resize(static_cast<size_t>(length));
  tokens.back() = last;
}

}  // namespace tempera::text
