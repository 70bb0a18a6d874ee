#pragma once

#include <optional>
#include <vector>

namespace tempera::study {

double mean(const std::vector<double>& values);
// With n - 1; 0 for fewer than two values.
double standard_deviation(const std::vector<double>& values);

// Half the width of the 95 % interval of the mean, by Student's t; 0 for fewer than two values.
double confidence_half_width(const std::vector<double>& values);

// A number over the seeds.
struct Summary {
  double mean = 0;
  double sd = 0;
  double ci95 = 0;                        // half the width of the interval
  std::vector<double> seeds;              // the values
  std::optional<double> p_against_first;  // of the paired test against the first method

  static void fields(auto& self, auto&& field) {
    field("mean", self.mean);
    field("sd", self.sd);
    field("ci95", self.ci95);
    field("seeds", self.seeds);
    field("p_against_first", self.p_against_first);
  }
};
Summary summarise(std::vector<double> values);

// Two-sided p-value of "the pairs differ by 0 on average", by the paired t-test; 1 where nothing
// can be said (fewer than two pairs, or no difference at all).
double paired_p_value(const std::vector<double>& a, const std::vector<double>& b);

// The t with P(|T| > t) = 0.05.
double critical_t(double freedom);

// P(|T| > t) for Student's t with the given degrees of freedom.
double student_two_sided(double t, double freedom);

}  // namespace tempera::study
