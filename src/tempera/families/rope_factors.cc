#include "tempera/families/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "tempera/base/error.h"

namespace tempera::families {
namespace {

using nn::RopeConfig;
using nn::RopeScaling;

constexpr double kTolerance = 1e-5;       // of a factor; they are stored with 24 bits
constexpr double kLargestContext = 1e12;  // more tokens are none
constexpr double kUsualRatio = 4;         // of the two ends of the ramp, in all models so far
constexpr double kTurn = 2 * std::numbers::pi;

double frequency(const RopeConfig& rope, size_t index, size_t count) {
  return std::pow(rope.base, -static_cast<double>(index) / static_cast<double>(count));
}

bool equal(double a, double b) { return std::abs(a - b) <= kTolerance * b; }

bool gives(const RopeConfig& rope, std::span<const float> factors) {
  const auto found = rope_factors(rope, static_cast<int64_t>(2 * factors.size()));
  return std::ranges::equal(found, factors, equal);
}

// Frequencies that turn often within the old context are kept, slow ones divided by the largest
// factor, and the share that is kept grows linearly with the frequency in between:
// share = (turns / low - 1) / (ratio - 1), with turns / low = reach * frequency / (2 pi).
struct Ramp {
  double reach;  // the old context divided by the lower end
  double ratio;  // of the ends
};

struct Point {
  double frequency, share;
};

// One point on the ramp leaves the ratio open: the usual one, or what keeps the neighbours, `step`
// times faster and slower, off the ramp.
Ramp through(const Point& point, double step) {
  double ratio = std::min(kUsualRatio, 1 + (step - 1) / point.share);
  if (1 / step > point.share) ratio = std::min(ratio, (1 - point.share) / (1 / step - point.share));
  return {kTurn * (1 + (ratio - 1) * point.share) / point.frequency, ratio};
}

std::optional<Ramp> fit(const std::vector<Point>& points) {
  std::vector<Point> inner;
  for (const Point& point : points)
    if (point.share > kTolerance && point.share < 1 - kTolerance) inner.push_back(point);
  if (inner.size() == 1) return through(inner[0], points[0].frequency / points[1].frequency);
  if (inner.empty()) {  // the ends are the slowest that is kept and the fastest that is not
    const auto slow = std::ranges::find_if(points, [](const Point& p) { return p.share < 0.5; });
    if (slow == points.begin() || slow == points.end()) return std::nullopt;
    return Ramp{kTurn / slow->frequency, std::prev(slow)->frequency / slow->frequency};
  }
  const Point fast = inner.front(), slow = inner.back();
  const double slope = (fast.share - slow.share) / (fast.frequency - slow.frequency);
  const double start = slope * fast.frequency - fast.share;  // 1 / (ratio - 1)
  if (!(slope > 0) || !(start > 0)) return std::nullopt;
  return Ramp{kTurn * slope / start, 1 + 1 / start};
}

double rounded(double value) { return std::round(value * 1e3) / 1e3; }

// The settings of Llama 3's scaling that give these factors, the largest of which is `largest`.
std::optional<RopeConfig> fit_llama3(std::span<const float> factors, double largest,
                                     RopeConfig rope) {
  rope.scaling = RopeScaling::kLlama3;
  std::vector<Point> points;
  for (size_t i = 0; i < factors.size(); ++i)
    points.push_back({frequency(rope, i, factors.size()),
                      (1 / static_cast<double>(factors[i]) - 1 / largest) / (1 - 1 / largest)});
  const auto ramp = rope.base > 1 && largest > 1 ? fit(points) : std::nullopt;
  if (!ramp || !(ramp->ratio > 1) || !(ramp->reach >= 1) || !(ramp->reach < kLargestContext))
    return std::nullopt;
  // Only the quotients are known; the context is a whole number, and the ends most often are.
  rope.original_context = std::llround(ramp->reach);
  const double low = static_cast<double>(rope.original_context) / ramp->reach;
  rope.low_factor = rounded(low);
  rope.high_factor = rounded(low * ramp->ratio);
  if (rope.high_factor > rope.low_factor && gives(rope, factors)) return rope;
  rope.low_factor = low;
  rope.high_factor = low * ramp->ratio;
  if (gives(rope, factors)) return rope;
  return std::nullopt;
}

}  // namespace

std::vector<float> rope_factors(const RopeConfig& rope, int64_t size) {
  if (rope.scaling == RopeScaling::kFactors) return {rope.factors.begin(), rope.factors.end()};
  std::vector<float> factors(static_cast<size_t>(size / 2));
  for (size_t i = 0; i < factors.size(); ++i) {
    const double turns =
        static_cast<double>(rope.original_context) * frequency(rope, i, factors.size()) / kTurn;
    const double share =
        std::clamp((turns - rope.low_factor) / (rope.high_factor - rope.low_factor), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / ((1 - share) / rope.factor + share));
  }
  return factors;
}

void read_rope_factors(std::span<const float> factors, RopeConfig& rope, const std::string& where) {
  for (const float factor : factors)
    TEMPERA_CHECK(factor > 0 && static_cast<double>(factor) < kLargestRopeFactor, where,
                  ": rope_freqs.weight: the factor ", factor,
                  " given, a number above 0 and below a million expected");
  TEMPERA_CHECK(!factors.empty(), where, ": rope_freqs.weight: no factor given");
  TEMPERA_CHECK(rope.scaling == RopeScaling::kNone, where,
                ": rope_freqs.weight beside another scaling in rope.scaling.type");
  if (std::ranges::all_of(factors, [](double factor) { return equal(factor, 1); })) return;
  const auto largest = static_cast<double>(*std::ranges::max_element(factors));
  rope.factor =
      std::abs(largest - std::round(largest)) < kTolerance ? std::round(largest) : largest;
  rope.scaling = RopeScaling::kLinear;
  if (std::ranges::all_of(factors, [&](double factor) { return equal(factor, largest); })) return;

  if (const auto llama3 = fit_llama3(factors, largest, rope)) {
    rope = *llama3;
    return;
  }
  rope.scaling = RopeScaling::kFactors;
  rope.factor = 1;
  rope.factors.assign(factors.begin(), factors.end());
}

}  // namespace tempera::families
