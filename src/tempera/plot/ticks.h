#pragma once

#include <span>
#include <string>
#include <vector>

namespace tempera::plot {

struct Range {
  double low = 0, high = 1;
};

struct Tick {
  double value;
  std::string label;
};

// The smallest range over the values that can be shown: finite, and above zero on a logarithmic
// axis. Never empty: a single value gets room around it, no value gives [0, 1] or [1, 10].
Range data_range(std::span<const double> values, bool log);

// The range itself, or one around it that is wide enough to tell its ends apart.
Range widen(Range range, bool log);

// Positions of a value on an axis.
class Scale {
 public:
  // The range must be the result of data_range or widen.
  Scale(Range range, bool log);
  // Whether the value has a place on this axis at all.
  bool shows(double value) const;
  // 0 at the low end, 1 at the high one; far values are clamped so that coordinates stay drawable.
  double unit(double value) const;
  bool inside(double value) const {
    return shows(value) && value >= range_.low && value <= range_.high;
  }
  bool log() const { return log_; }
  const Range& range() const { return range_; }

 private:
  Range range_;
  bool log_;
};

// About `target` round values within the scale's range, with labels of one form.
std::vector<Tick> make_ticks(const Scale& scale, int target);

// A short label: at most `digits` significant ones, k/M/G/T for large numbers.
std::string short_number(double value, int digits = 3);

// A fixed number of decimals, with a proper minus sign; "\u2013" for what is not a number.
std::string fixed_number(double value, int decimals);

}  // namespace tempera::plot
