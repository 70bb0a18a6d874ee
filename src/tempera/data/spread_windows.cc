#include "tempera/data/spread_windows.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::data {
namespace {

// Numbers of [0, most], in order.
std::vector<int64_t> sorted_draws(RandomStream& random, int64_t count, int64_t most) {
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.push_back(random.between(0, most));
  std::ranges::sort(drawn);
  return drawn;
}

// The positions of a document of `size` tokens.
std::vector<int64_t> draw_positions(RandomStream& random, int64_t size,
                                    const SpreadOptions& options) {
  std::vector<int64_t> positions(static_cast<size_t>(size));
  const int64_t parts = std::min(options.parts, size);
  // No part is shorter than a quarter of their mean.
  const int64_t least = std::max<int64_t>(1, size / (4 * parts));
  const auto cuts = sorted_draws(random, parts - 1, size - parts * least);
  const auto offsets = sorted_draws(random, parts - 1, options.context - size);
  int64_t part = 0, offset = 0;
  for (int64_t i = 0; i < size; ++i) {
    while (part < parts - 1 && i == cuts[static_cast<size_t>(part)] + (part + 1) * least)
      offset = offsets[static_cast<size_t>(part++)];
    positions[static_cast<size_t>(i)] = i + offset;
  }
  return positions;
}

// For a row that sees `present` keys where a whole text has `all`.
float correction_of(int64_t present, int64_t all, double share) {
  if (present == all) return 1;
  const double ratio = std::log(static_cast<double>(present)) / std::log(static_cast<double>(all));
  return static_cast<float>(std::pow(ratio, share));
}

}  // namespace

SpreadWindows::SpreadWindows(std::shared_ptr<const Dataset> rows, const SpreadOptions& options)
    : ChangedRows(std::move(rows)), options_(options) {
  TEMPERA_CHECK(options.context >= train_length(), "positions below ", options.context,
                " for rows of ", train_length(), " tokens");
  TEMPERA_CHECK(options.parts >= 2, "rows in ", options.parts, " parts; at least 2 expected");
  TEMPERA_CHECK(options.correction >= 0 && options.correction <= 1, "a share of ",
                options.correction, " of the correction; 0 to 1 expected");
  options_.seed = derive_seed(options.seed, "text/spread");
}

Batch SpreadWindows::train(const BatchRequest& request) const {
  Batch batch = rows().train(request);
  batch.position_end = options_.context;
  batch.positions.reserve(batch.tokens.size());
  for (int64_t row = 0; row < batch.rows; ++row) {
    RandomStream random(options_.seed, row_number(request, row));
    for_documents(batch, row, [&](int64_t, int64_t size) {
      const auto drawn = draw_positions(random, size, options_);
      batch.positions.insert(batch.positions.end(), drawn.begin(), drawn.end());
      if (options_.correction == 0) return;
      for (int64_t i = 0; i < size; ++i)
        batch.attention_scale.push_back(
            correction_of(i + 1, drawn[static_cast<size_t>(i)] + 1, options_.correction));
    });
  }
  return batch;
}

}  // namespace tempera::data
