#include "tempera/lens/subject.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/ops/torch.h"
#include "tempera/text/stream.h"

namespace tempera::lens {
namespace {

torch::Tensor row_of(const Sequence& text) {
  return torch::tensor(text.ids, torch::kInt64).unsqueeze(0);
}

}  // namespace

size_t Subject::row_text(const Attention& attention) const {
  const bool written =
      attention.role == AttentionRole::kDecoder || attention.role == AttentionRole::kCross;
  return written ? 1 : 0;
}

size_t Subject::key_text(const Attention& attention) const {
  return attention.role == AttentionRole::kDecoder ? 1 : 0;
}

std::vector<std::string> token_pieces(const text::Tokenizer& tokenizer,
                                      const std::vector<int64_t>& ids) {
  text::StreamDecoder decoder(tokenizer, text::SpecialText::kShow);
  std::vector<std::string> pieces;
  for (const int64_t id : ids) pieces.push_back(decoder.push(static_cast<int32_t>(id)));
  if (!pieces.empty()) pieces.back() += decoder.finish();
  return pieces;
}

Sequence read_sequence(const text::Tokenizer& tokenizer, std::string_view text,
                       std::string_view origin, int64_t most) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids, {.add_special = true});
  if (most > 0 && std::ssize(ids) > most) ids.resize(static_cast<size_t>(most));
  TEMPERA_CHECK(!ids.empty(), origin, ": the text has no tokens; give a file with text in it");
  TEMPERA_CHECK(std::ssize(ids) <= kMostTokens, origin, ": the text has ",
                count_text(std::ssize(ids)), " tokens, and the lens looks at up to ",
                count_text(kMostTokens), "; give a shorter text, or --tokens for its begin");
  Sequence read;
  read.ids.assign(ids.begin(), ids.end());
  read.pieces = token_pieces(tokenizer, read.ids);
  return read;
}

std::vector<Span> places_of(const Sequence& text, const std::string& part, int64_t end) {
  std::string all;
  std::vector<size_t> begins;
  for (int64_t i = 0; i < end; ++i) {
    begins.push_back(all.size());
    all += text.pieces[static_cast<size_t>(i)];
  }
  const auto token_at = [&](size_t byte) {
    return std::ranges::upper_bound(begins, byte) - begins.begin() - 1;
  };
  std::vector<Span> places;
  for (size_t at = all.find(part); !part.empty() && at != std::string::npos;
       at = all.find(part, at + part.size())) {
    const int64_t first = token_at(at);
    places.push_back({first, token_at(at + part.size() - 1) - first + 1});
  }
  return places;
}

nn::Batch batch_of(const std::vector<Sequence>& texts) {
  nn::Batch batch;
  batch.tokens = row_of(texts.back());
  if (texts.size() > 1) batch.source = row_of(texts.front());
  return batch;
}

void check_comparable(const Subject& one, const Subject& other) {
  TEMPERA_CHECK(one.texts.size() == other.texts.size(), one.name, " and ", other.name,
                " are models of different kinds, whose attentions have no common text");
  for (size_t i = 0; i < one.texts.size(); ++i)
    TEMPERA_CHECK(one.texts[i].pieces == other.texts[i].pieces, one.name, " reads the text as ",
                  count_text(std::ssize(one.texts[i].ids)), " tokens and ", other.name, " as ",
                  count_text(std::ssize(other.texts[i].ids)),
                  " others: only models with the same tokens can be laid side by side; look at "
                  "each by itself");
}

bool same_heads(const Subject& one, const Subject& other) {
  return std::ranges::equal(one.view.attentions, other.view.attentions,
                            [](const Attention& a, const Attention& b) {
                              return a.role == b.role && a.heads() == b.heads();
                            });
}

}  // namespace tempera::lens
