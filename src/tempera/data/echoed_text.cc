#include "tempera/data/echoed_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::data {
namespace {

// Draws of a place for an echo before it is left out for want of room.
constexpr int kTries = 16;

struct Echo {
  int64_t from, to;  // places in the document
};

// In the order of the text, none next to another.
std::vector<Echo> draw_echoes(RandomStream& random, int64_t size, const EchoOptions& options) {
  const int64_t length = options.length;
  std::vector<Echo> echoes;
  if (size < 2 * length) return echoes;
  const double wanted =
      options.share * static_cast<double>(size) / static_cast<double>(length) + random.uniform();
  for (auto left = static_cast<int64_t>(wanted); left > 0; --left) {
    for (int i = 0; i < kTries; ++i) {
      const int64_t distance = random.between(length, size - length);
      const int64_t to = random.between(distance, size - length);
      const bool free = std::ranges::none_of(
          echoes, [&](const Echo& other) { return std::abs(other.to - to) <= length; });
      if (!free) continue;
      echoes.push_back({.from = to - distance, .to = to});
      break;
    }
  }
  // So every span is copied as it stays: what overwrites it lies before its copy.
  std::ranges::sort(echoes, {}, &Echo::to);
  return echoes;
}

void put(Batch& batch, int64_t begin, const Echo& echo, const EchoOptions& options) {
  const auto at = [](int64_t place) { return static_cast<size_t>(place); };
  const int64_t lead = EchoedText::lead(options.length);
  for (int64_t i = 0; i < options.length; ++i) {
    const int64_t to = begin + echo.to + i;
    batch.tokens[at(to)] = batch.tokens[at(begin + echo.from + i)];
    batch.targets[at(to - 1)] = batch.tokens[at(to)];
    batch.shares[at(to - 1)] = i < lead ? 0 : static_cast<float>(options.weight);
  }
  batch.shares[at(begin + echo.to + options.length - 1)] = 0;
}

}  // namespace

EchoedText::EchoedText(std::shared_ptr<const Dataset> rows, const EchoOptions& options)
    : ChangedRows(std::move(rows)), options_(options) {
  TEMPERA_CHECK(options.share >= 0 && options.share <= 0.5, "echoes are a share of ", options.share,
                " of the tokens; 0 to 0.5 expected");
  TEMPERA_CHECK(options.length > 0 && options.weight > 0, "echoes of ", options.length,
                " tokens that count ", options.weight, " times; both must be above 0");
  options_.seed = derive_seed(options.seed, "text/echo");
}

Batch EchoedText::train(const BatchRequest& request) const {
  Batch batch = rows().train(request);
  if (request.step >= options_.until) return batch;
  if (batch.shares.empty()) batch.shares.assign(batch.tokens.size(), 1);
  for (int64_t row = 0; row < batch.rows; ++row) {
    RandomStream random(options_.seed, row_number(request, row));
    for_documents(batch, row, [&](int64_t begin, int64_t size) {
      for (const Echo& echo : draw_echoes(random, size, options_))
        put(batch, begin, echo, options_);
    });
  }
  return batch;
}

}  // namespace tempera::data
