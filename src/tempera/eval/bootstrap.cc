#include "tempera/eval/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::eval {
namespace {

constexpr double kOutside = 0.025;  // on either side of the interval

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Estimate bootstrap(std::span<const double> examples, const Statistic& statistic, int64_t seed,
                   int resamples) {
  TEMPERA_CHECK(!examples.empty(), "no example to measure");
  const uint64_t stream = data::derive_seed(static_cast<uint64_t>(seed), "bootstrap");
  std::vector<double> drawn(examples.size()), values;
  for (int i = 0; i < resamples; ++i) {
    data::RandomStream random(stream, static_cast<uint64_t>(i));
    for (double& example : drawn)
      example = examples[random.below(static_cast<uint32_t>(examples.size()))];
    values.push_back(statistic(drawn));
  }
  std::ranges::sort(values);
  return {.value = statistic(examples),
          .standard_error = deviation(values),
          .low = quantile(values, kOutside),
          .high = quantile(values, 1 - kOutside)};
}

Estimate bootstrap_mean(std::span<const double> examples, int64_t seed) {
  Estimate estimate = bootstrap(examples, mean, seed);
  estimate.standard_error = deviation(examples) / std::sqrt(static_cast<double>(examples.size()));
  return estimate;
}

Estimate binomial(double share, int64_t count) {
  TEMPERA_CHECK(count > 0, "no example to measure");
  constexpr double kDeviations = 1.959963984540054;  // of a normal distribution, 95 % within
  const auto n = static_cast<double>(count);
  const double square = kDeviations * kDeviations / n;
  const double variance = share * (1 - share);
  const double middle = (share + square / 2) / (1 + square);
  const double half = kDeviations * std::sqrt(variance / n + square / (4 * n)) / (1 + square);
  return {.value = share,
          .standard_error = count > 1 ? std::sqrt(variance / (n - 1)) : 0,
          .low = std::max(0.0, middle - half),
          .high = std::min(1.0, middle + half)};
}

}  // namespace tempera::eval
