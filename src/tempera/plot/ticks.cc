#include "tempera/plot/ticks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace tempera::plot {
namespace {

// Beyond this, differences of two values would overflow; they are drawn at the edge.
constexpr double kLargest = 1e300;
constexpr double kSmallest = 1e-300;

bool showable(double value, bool log) { return std::isfinite(value) && (!log || value > 0); }

std::string print(const char* format, int precision, double value) {
  std::array<char, 400> buffer;
  const int length = std::snprintf(buffer.data(), buffer.size(), format, precision, value);
  std::string text(buffer.data(), static_cast<size_t>(std::clamp(length, 0, 399)));
  if (text.empty() || text[0] != '-') return text;
  const bool zero = text.find_first_of("123456789") == std::string::npos;
  return zero ? text.substr(1) : "\u2212" + text.substr(1);
}

struct Unit {
  double factor;
  const char* suffix;
};
constexpr std::array<Unit, 4> kUnits{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};

// A round step of 1, 2, 2.5 or 5 times a power of ten that gives about `target` steps in the span.
double round_step(double span, int target) {
  const double rough = span / target;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * power >= rough * 0.999) return factor * power;
  return 10 * power;
}

int decimals_of(double step) {
  for (int decimals = 0; decimals < 15; ++decimals) {
    const double shifted = step * std::pow(10.0, decimals);
    if (std::abs(shifted - std::round(shifted)) < 1e-6 * shifted) return decimals;
  }
  return 15;
}

// Labels of a linear axis share their unit and decimals, so that they can be compared at a glance.
std::vector<Tick> linear_ticks(const Range& range, int target) {
  const double step = round_step(range.high - range.low, target);
  const double first = std::ceil(range.low / step - 1e-9),
               last = std::floor(range.high / step + 1e-9);
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  const bool scientific = largest >= 1e15 || largest < 1e-4;
  Unit unit{1, ""};
  for (const Unit& candidate : kUnits)
    if (largest >= std::max(candidate.factor, 9999.0) && unit.factor == 1) unit = candidate;
  const int decimals = decimals_of(step / unit.factor);
  std::vector<Tick> ticks;
  for (double i = first; i <= last && ticks.size() < 100; ++i) {
    const double value = i * step;
    std::string label =
        scientific ? print("%.*g", 4, value) : print("%.*f", decimals, value / unit.factor);
    if (!scientific && i != 0) label += unit.suffix;
    ticks.push_back({value, std::move(label)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(const Range& range, int target) {
  const int first = static_cast<int>(std::floor(std::log10(range.low))),
            last = static_cast<int>(std::ceil(std::log10(range.high)));
  const auto collect = [&](std::span<const double> factors, int stride) {
    std::vector<Tick> ticks;
    for (int exponent = first; exponent <= last; ++exponent) {
      if (exponent % stride != 0) continue;
      for (const double factor : factors) {
        const double value = factor * std::pow(10.0, exponent);
        if (value >= range.low * (1 - 1e-9) && value <= range.high * (1 + 1e-9))
          ticks.push_back({value, short_number(value)});
      }
    }
    return ticks;
  };
  constexpr std::array kDecades{1.0};
  constexpr std::array kFine{1.0, 2.0, 5.0};
  const double decades = std::log10(range.high) - std::log10(range.low);
  if (decades * 3 <= target) {
    auto ticks = collect(kFine, 1);
    return ticks.size() >= 3 ? ticks : linear_ticks(range, target);
  }
  return collect(kDecades, std::max(1, static_cast<int>(std::ceil(decades / target))));
}

}  // namespace

Range widen(Range range, bool log) {
  if (!showable(range.low, log) || !showable(range.high, log))
    return log ? Range{1, 10} : Range{0, 1};
  if (range.low > range.high) std::swap(range.low, range.high);
  if (log) {
    range = {std::clamp(range.low, kSmallest, kLargest),
             std::clamp(range.high, kSmallest, kLargest)};
    if (range.high / range.low < 1 + 1e-9) range = {range.low / 2, range.high * 2};
    return range;
  }
  range = {std::clamp(range.low, -kLargest, kLargest), std::clamp(range.high, -kLargest, kLargest)};
  const double magnitude = std::max(std::abs(range.low), std::abs(range.high));
  // Too close for round ticks between them to be told apart in double precision.
  if (range.high - range.low <= std::max(magnitude * 1e-10, kSmallest)) {
    const double room = magnitude > kSmallest ? magnitude * 0.1 : 0.5;
    range = {range.low - room, range.high + room};
  }
  return range;
}

Range data_range(std::span<const double> values, bool log) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Range range{kNone, kNone};
  for (const double value : values) {
    if (!showable(value, log)) continue;
    range = {std::fmin(range.low, value), std::fmax(range.high, value)};
  }
  return widen(range, log);
}

Scale::Scale(Range range, bool log) : range_(range), log_(log) {}

bool Scale::shows(double value) const { return showable(value, log_); }

double Scale::unit(double value) const {
  const double low = log_ ? std::log(range_.low) : range_.low;
  const double high = log_ ? std::log(range_.high) : range_.high;
  const double at = log_ ? std::log(value) : std::clamp(value, -10 * kLargest, 10 * kLargest);
  return std::clamp((at - low) / (high - low), -1000.0, 1000.0);
}

std::vector<Tick> make_ticks(const Scale& scale, int target) {
  target = std::max(target, 2);
  return scale.log() ? log_ticks(scale.range(), target) : linear_ticks(scale.range(), target);
}

std::string short_number(double value, int digits) {
  if (!std::isfinite(value)) return "\u2013";
  const double magnitude = std::abs(value);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e15))
    return print("%.*g", digits, value);
  if (magnitude >= 9999.5)
    for (const Unit& unit : kUnits)
      if (magnitude >= unit.factor * 0.9995)
        return print("%.*g", std::max(digits, 3), value / unit.factor) + unit.suffix;
  const int whole = magnitude >= 1 ? static_cast<int>(std::floor(std::log10(magnitude))) + 1 : 1;
  return print("%.*g", std::max(digits, whole), value);
}

std::string fixed_number(double value, int decimals) {
  if (!std::isfinite(value)) return "\u2013";
  if (std::abs(value) >= 1e15) return print("%.*g", 4, value);
  return print("%.*f", decimals, value);
}

}  // namespace tempera::plot
