#include "tempera/data/example_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/permutation.h"
#include "tempera/data/random.h"

namespace tempera::data {
namespace {

// Steps whose examples are sorted together, at most: enough for rows of like length, few enough
// that the order stays random and a step is cheap to find.
constexpr uint64_t kStepsTogether = 32;

}  // namespace

ExampleDataset::ExampleDataset(std::string name, std::vector<int64_t> sizes,
                               const TextOptions& options)
    : name_(std::move(name)),
      sizes_(std::move(sizes)),
      length_(options.length),
      order_seed_(derive_seed(options.seed, "examples/order")),
      batch_seed_(derive_seed(options.seed, "examples/batches")) {
  TEMPERA_CHECK(length_ >= 1, "rows of ", length_, " tokens given, at least 1 expected");
  TEMPERA_CHECK(options.held_out >= 0 && options.held_out < 1, "a held-out share of ",
                options.held_out, "; expected 0 to below 1, such as 0.05");
  const size_t count = sizes_.size();
  const size_t needed = options.held_out > 0 ? 2 : 1;
  TEMPERA_CHECK(count >= needed, "the data '", name_, "' has ", count, " examples, at least ",
                needed, " needed", needed > 1 ? " (one to train on and one held out)" : "");
  const auto share = std::ceil(options.held_out * static_cast<double>(count));
  const size_t held = std::min(static_cast<size_t>(share), count - 1);
  const Permutation order(count, derive_seed(0, "examples/held-out"));
  for (size_t i = 0; i < count; ++i) (i < held ? held_out_ : train_).push_back(order(i));
  std::ranges::sort(train_);
  if (held == 0) return;
  std::ranges::sort(held_out_, [&](size_t a, size_t b) { return shorter(a, b); });
  held_out_sets_ = {{.label = "held-out",
                     .size = length_,
                     .rows = static_cast<int64_t>(held),
                     .length = std::min(length_, sizes_[held_out_.back()])}};
}

bool ExampleDataset::shorter(size_t a, size_t b) const {
  return std::pair(sizes_[a], a) < std::pair(sizes_[b], b);
}

std::vector<size_t> ExampleDataset::step_examples(uint64_t step, int64_t rows) const {
  const uint64_t count = train_.size();
  const auto batch = static_cast<uint64_t>(rows);
  // No more than an epoch: copies of an example would be sorted into one batch.
  const uint64_t steps = std::clamp<uint64_t>(count / batch, 1, kStepsTogether);
  const uint64_t together = steps * batch;
  const uint64_t group = step / steps;
  std::vector<size_t> examples;
  examples.reserve(together);
  for (uint64_t epoch = group * together / count, sample = group * together;
       examples.size() < together; ++epoch) {
    const Permutation order(count, mix64(order_seed_ + epoch));
    for (; sample < (epoch + 1) * count && examples.size() < together; ++sample)
      examples.push_back(train_[order(sample % count)]);
  }
  std::ranges::sort(examples, [&](size_t a, size_t b) { return shorter(a, b); });
  const Permutation batches(steps, mix64(batch_seed_ + group));
  const auto first = static_cast<std::ptrdiff_t>(batches(step % steps) * batch);
  return {examples.begin() + first, examples.begin() + first + rows};
}

Batch ExampleDataset::train(const BatchRequest& request) const {
  check_request(request);
  const auto examples = step_examples(request.step, request.batch_rows);
  return batch_of(std::span(examples).subspan(static_cast<size_t>(request.first_row),
                                              static_cast<size_t>(request.rows)));
}

Batch ExampleDataset::held_out(size_t set, int64_t first_row, int64_t rows) const {
  check_held_out(*this, set, first_row, rows);
  return batch_of(
      std::span(held_out_).subspan(static_cast<size_t>(first_row), static_cast<size_t>(rows)));
}

Batch ExampleDataset::in_order(int64_t first, int64_t rows) const {
  check_request({.step = 0, .batch_rows = train_examples(), .first_row = first, .rows = rows});
  return batch_of(std::span(train_).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
}

PaddedRows pad_rows(std::span<const std::span<const int64_t>> rows, int64_t pad) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  PaddedRows padded{.length = static_cast<int64_t>(longest),
                    .tokens = std::vector<int64_t>(rows.size() * longest, pad),
                    .lengths = {}};
  for (size_t r = 0; r < rows.size(); ++r) {
    std::ranges::copy(rows[r], padded.tokens.begin() + static_cast<std::ptrdiff_t>(r * longest));
    padded.lengths.push_back(static_cast<int64_t>(rows[r].size()));
  }
  return padded;
}

}  // namespace tempera::data
