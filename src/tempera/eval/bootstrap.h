#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace tempera::eval {

struct Estimate {
  double value = 0;
  double standard_error = 0;
  double low = 0, high = 0;  // of the 95 % interval; of resamples: the middle 95 %
};

// What the value would have been with other examples of the same kind: it is computed again for
// resamples of the examples, drawn with replacement. The same seed gives the same interval.
using Statistic = std::function<double(std::span<const double>)>;
Estimate bootstrap(std::span<const double> examples, const Statistic& statistic, int64_t seed = 0,
                   int resamples = 1000);

// Of the mean, whose standard error needs no resamples: the examples' deviation (over n - 1) over
// sqrt(n).
Estimate bootstrap_mean(std::span<const double> examples, int64_t seed = 0);

// Of the share of right answers among `count` independent ones: Wilson's score interval, which
// leaves room for what was not seen where all or none are right. The standard error is that of
// bootstrap_mean.
Estimate binomial(double share, int64_t count);

}  // namespace tempera::eval
