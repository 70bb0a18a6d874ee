#include "tempera/bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tempera/base/error.h"

namespace tempera::bench {

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], at - static_cast<double>(low));
}

Spread spread_of(std::vector<double> samples) {
  TEMPERA_CHECK(!samples.empty(), "there is no median of no times");
  std::ranges::sort(samples);
  return {.median = quantile(samples, 0.5),
          .min = samples.front(),
          .lower = quantile(samples, 0.25),
          .upper = quantile(samples, 0.75),
          .runs = static_cast<int64_t>(samples.size())};
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<Spread> time_in_turn(std::span<const std::function<void()>> contenders, double seconds,
                                 int64_t least) {
  std::vector<std::vector<double>> samples(contenders.size());
  double used = 0;
  for (int64_t round = 0; round < least || used < seconds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      samples[i].push_back(seconds_of(contenders[i]));
      used += samples[i].back();
    }
  }
  std::vector<Spread> spreads;
  for (auto& times : samples) spreads.push_back(spread_of(std::move(times)));
  return spreads;
}

}  // namespace tempera::bench
