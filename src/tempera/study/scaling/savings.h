#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tempera/study/scaling/law.h"

// What fitted laws say of methods, with intervals: everything is computed again for resamples of
// the cells and, within each, of the seeds; all methods share the resample, so that what they have
// in common cancels out.
namespace tempera::study::scaling {

// The losses of all methods at one size and number of tokens: losses[method][seed]; NaN: none.
struct LossCell {
  double parameters = 0, tokens = 0;
  std::vector<std::vector<double>> losses;
};

// A number with its 95 % interval. Of a share that no size reaches: infinite.
struct Interval {
  double value = 0, low = 0, high = 0;
  bool holds(double other) const { return low <= other && other <= high; }
};

struct Saving {
  double share = 0;  // of the baseline's parameters (or tokens) with which the method does as well
  Interval interval;
  bool told = false;          // whether the interval leaves 1 out
  bool extrapolated = false;  // the share leads out of what was measured
};

struct MethodLaw {
  Law law;
  Interval e = {}, a = {}, b = {}, alpha = {}, beta = {};
  std::vector<double> residuals = {};  // ln of measured over fitted: of each cell the mean; or NaN
  double spread = 0;                   // root of the mean square of those of single models
};

struct MethodSavings {
  Saving parameters, tokens;
};

struct LawStudy {
  std::vector<std::optional<MethodLaw>> laws;  // one a method; none: the cells cannot tell
  std::vector<std::optional<MethodSavings>>
      savings;                        // against the first, at `parameters`, `tokens`
  double parameters = 0, tokens = 0;  // the largest cell
  int64_t resamples = 0;
};

// Fits every method. `resamples`: how many intervals are made of.
LawStudy study_laws(std::span<const LossCell> cells, size_t methods, int64_t resamples,
                    uint64_t seed = 0);

// The middle 95 % of some values, around `value`.
Interval middle(double value, std::vector<double> values);

// "12 % fewer (18 % fewer to 5 % fewer)", "no difference that can be told (7 % fewer to 3 % more)",
// with a note where the share leads out of what was measured.
std::string saving_text(const Saving& saving);

}  // namespace tempera::study::scaling
