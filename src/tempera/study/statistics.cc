#include "tempera/study/statistics.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::study {
namespace {

// The regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz's method),
// which converges fast for x below the mean; above it the symmetry I_x(a, b) = 1 - I_(1-x)(b, a) is
// used.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1;
  double d = 1 / std::max(std::abs(1 - (a + b) * x / (a + 1)), kTiny);
  double result = d;
  for (int m = 1; m < 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      d = 1 / (std::abs(1 + term * d) < kTiny ? kTiny : 1 + term * d);
      c = std::abs(1 + term / c) < kTiny ? kTiny : 1 + term / c;
      change = c * d;
      result *= change;
    }
    if (std::abs(change - 1) < 1e-14) break;
  }
  return result;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double mean(const std::vector<double>& values) {
  TEMPERA_CHECK(!values.empty(), "the mean of no values");
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double centre = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double confidence_half_width(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto count = static_cast<double>(values.size());
  return critical_t(count - 1) * standard_deviation(values) / std::sqrt(count);
}

Summary summarise(std::vector<double> values) {
  Summary summary{.mean = mean(values),
                  .sd = standard_deviation(values),
                  .ci95 = confidence_half_width(values),
                  .seeds = {},
                  .p_against_first = {}};
  summary.seeds = std::move(values);
  return summary;
}

double student_two_sided(double t, double freedom) {
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double critical_t(double freedom) {
  // By bisection.
  double low = 0, high = 1000;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, freedom) > 0.05 ? low : high) = middle;
  }
  return high;
}

double paired_p_value(const std::vector<double>& a, const std::vector<double>& b) {
  TEMPERA_CHECK(a.size() == b.size(), "a paired test of ", a.size(), " and ", b.size(), " values");
  if (a.size() < 2) return 1;
  std::vector<double> difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  const double spread = standard_deviation(difference);
  const double centre = mean(difference);
  if (spread == 0) return centre == 0 ? 1 : 0;
  const auto count = static_cast<double>(a.size());
  return student_two_sided(std::abs(centre) / (spread / std::sqrt(count)), count - 1);
}

}  // namespace tempera::study
