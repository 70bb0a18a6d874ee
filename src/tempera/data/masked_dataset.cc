#include "tempera/data/masked_dataset.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::data {
namespace {

constexpr double kShare = 0.15;    // of the tokens
constexpr double kMeanSpan = 3;    // tokens
constexpr int64_t kShortest = 10;  // row of which spans are taken out
constexpr double kMasked = 0.8;    // of the predicted tokens
constexpr double kReplaced = 0.9;  // up to here: by another token

int64_t share_of(int64_t count) { return std::llround(kShare * static_cast<double>(count)); }

// A random token of a text.
int64_t any_token(const text::SequenceTokens& ids, RandomStream& random) {
  for (;;) {
    const uint32_t token = random.below(static_cast<uint32_t>(ids.vocabulary));
    if (!ids.special[token]) return token;
  }
}

// Cuts `total` into `parts` lengths of at least 1; all cuts are equally likely.
std::vector<int64_t> random_parts(int64_t total, int64_t parts, RandomStream& random) {
  std::vector<int64_t> lengths;
  int64_t cuts = parts - 1, begin = 0;
  for (int64_t at = 1; at < total && cuts > 0; ++at) {
    // Chosen with the share of the places left that are still to be cut.
    if (random.below(static_cast<uint32_t>(total - at)) >= static_cast<uint32_t>(cuts)) continue;
    lengths.push_back(at - begin);
    begin = at;
    --cuts;
  }
  lengths.push_back(total - begin);
  return lengths;
}

struct SpanPlan {
  int64_t hidden = 0;  // tokens of all spans
  int64_t spans = 0;
};

SpanPlan plan_spans(int64_t length, size_t sentinels) {
  const int64_t hidden = std::clamp<int64_t>(share_of(length), 1, length - 1);
  const int64_t wanted = std::llround(static_cast<double>(hidden) / kMeanSpan);
  const int64_t most = std::min({hidden, length - hidden, static_cast<int64_t>(sentinels)});
  return {.hidden = hidden, .spans = std::clamp<int64_t>(wanted, 1, most)};
}

}  // namespace

HidingDataset::HidingDataset(std::shared_ptr<const Dataset> text, text::SequenceTokens ids,
                             uint64_t seed)
    : text_(std::move(text)),
      ids_(std::move(ids)),
      train_seed_(derive_seed(seed, "hide/train")),
      held_out_seed_(derive_seed(0, "hide/held-out")) {}

Batch HidingDataset::train(const BatchRequest& request) const {
  std::vector<RandomStream> streams;
  for (int64_t row = 0; row < request.rows; ++row)
    streams.emplace_back(train_seed_, request.step, static_cast<uint32_t>(request.first_row + row));
  return hide(text_->train(request), std::move(streams));
}

Batch HidingDataset::held_out(size_t set, int64_t first_row, int64_t rows) const {
  std::vector<RandomStream> streams;
  for (int64_t row = 0; row < rows; ++row)
    streams.emplace_back(held_out_seed_, static_cast<uint64_t>(first_row + row),
                         static_cast<uint32_t>(set));
  return hide(text_->held_out(set, first_row, rows), std::move(streams));
}

Batch MaskedDataset::hide(Batch batch, std::vector<RandomStream> streams) const {
  std::ranges::fill(batch.targets, kIgnored);
  const auto length = static_cast<size_t>(batch.length);
  for (size_t row = 0; row < streams.size(); ++row) {
    RandomStream& random = streams[row];
    const std::span tokens(batch.tokens.data() + row * length, length);
    auto left = std::ranges::count_if(
        tokens, [&](int64_t token) { return !ids().special[static_cast<size_t>(token)]; });
    // At least one, so that no row is read for nothing.
    int64_t chosen = left == 0 ? 0 : std::max<int64_t>(1, share_of(left));
    for (size_t t = 0; t < length && chosen > 0; ++t) {
      if (ids().special[static_cast<size_t>(tokens[t])]) continue;
      if (random.below(static_cast<uint32_t>(left--)) >= static_cast<uint32_t>(chosen)) continue;
      --chosen;
      batch.targets[row * length + t] = tokens[t];
      const double way = random.uniform();
      if (way < kMasked)
        tokens[t] = ids().mask;
      else if (way < kReplaced)
        tokens[t] = any_token(ids(), random);
    }
  }
  return batch;
}

SpanDataset::SpanDataset(std::shared_ptr<const Dataset> text, text::SequenceTokens ids,
                         uint64_t seed)
    : HidingDataset(std::move(text), std::move(ids), seed) {
  // Below, sentinel and end would make a row longer than it was.
  TEMPERA_CHECK(train_length() >= kShortest, "rows of ", train_length(),
                " tokens given; taking spans out needs at least ", kShortest);
}

Batch SpanDataset::hide(Batch text, std::vector<RandomStream> streams) const {
  const SpanPlan plan = plan_spans(text.length, ids().sentinels.size());
  Batch batch;
  batch.rows = text.rows;
  batch.source_length = text.length - plan.hidden + plan.spans + 1;
  batch.length = plan.hidden + plan.spans + 1;
  for (size_t row = 0; row < streams.size(); ++row) {
    const auto hidden = random_parts(plan.hidden, plan.spans, streams[row]);
    const auto kept = random_parts(text.length - plan.hidden, plan.spans, streams[row]);
    auto at = text.tokens.begin() + static_cast<std::ptrdiff_t>(row) * text.length;
    int64_t before = ids().start;  // what a position reads is what the one before it had to say
    const auto write = [&](int64_t token) {
      batch.tokens.push_back(before);
      batch.targets.push_back(token);
      before = token;
    };
    for (size_t span = 0; span < hidden.size(); ++span) {
      batch.source.insert(batch.source.end(), at, at + kept[span]);
      batch.source.push_back(ids().sentinels[span]);
      at += kept[span];
      write(ids().sentinels[span]);
      for (int64_t i = 0; i < hidden[span]; ++i) write(*at++);
    }
    batch.source.push_back(ids().end);
    write(ids().end);
  }
  return batch;
}

}  // namespace tempera::data
