#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tempera::bench {

// Times of one contender, in seconds.
struct Spread {
  double median = 0;
  double min = 0;
  double lower = 0;  // quartiles
  double upper = 0;
  int64_t runs = 0;
};

// The value that a share of the samples, which are sorted and not none, lie below; between the two
// nearest ones.
double quantile(const std::vector<double>& sorted, double share);
Spread spread_of(std::vector<double> samples);

// Runs the contenders in turn, again and again, so that whatever else the machine does hits all of
// them alike: for `seconds`, and each at least `least` times. Warming up is the caller's business.
std::vector<Spread> time_in_turn(std::span<const std::function<void()>> contenders, double seconds,
                                 int64_t least);

// One run.
double seconds_of(const std::function<void()>& work);

}  // namespace tempera::bench
