#include "tempera/study/scaling/tuning.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tempera/base/error.h"

namespace tempera::study::scaling {
namespace {

constexpr double kUsualRate = 3e-3;
constexpr double kWidth = 128;  // at which rates are named
// A seed that no model of a grid has.
constexpr int64_t kTuningSeed = 1000;
constexpr size_t kSweptSizes = 2;
constexpr size_t kMostTrials = 8;

double scale(const Shape& shape) { return std::sqrt(kWidth / static_cast<double>(shape.width)); }

// Rounded, so that a rate is the same number after it was written and read.
double rounded(double rate) {
  const double unit = std::pow(10, std::floor(std::log10(rate)) - 3);
  return std::round(rate / unit) * unit;
}

std::vector<Shape> sizes_of(const Plan& plan) {
  std::vector<Shape> shapes;
  for (const Cell& cell : plan.cells)
    if (std::ranges::find(shapes, cell.shape) == shapes.end()) shapes.push_back(cell.shape);
  std::ranges::sort(shapes, {}, &Shape::parameters);
  return shapes;
}

// The cell of a shape with which rates are tried.
Cell trial_cell(const Plan& plan, const Shape& shape, const std::string& method, nn::QkNorm norm) {
  const Cell* least = nullptr;
  for (const Cell& cell : plan.cells)
    if (cell.shape == shape &&
        (!least || std::pair(cell.context, cell.tokens) < std::pair(least->context, least->tokens)))
      least = &cell;
  Cell cell = *least;
  cell.method = method;
  cell.qk_norm = norm;
  cell.seed = kTuningSeed;
  return cell;
}

// What is there of a curve. Its jobs are noted in `jobs`; complete: whether all are done.
RateCurve read_curve(const Cell& cell, Purpose purpose, const std::set<double>& rates,
                     const Results& results, std::vector<Job>& jobs, bool& complete) {
  RateCurve curve{.shape = cell.shape, .trials = {}};
  complete = true;
  for (const double rate : rates) {
    jobs.push_back({.purpose = purpose, .cell = cell, .learning_rate = rate});
    if (const JobResult* result = results(jobs.back()))
      curve.trials.push_back({rate, result->loss(), result->outcome});
    else
      complete = false;
  }
  curve.best = best_rate(curve.trials);
  return curve;
}

size_t lowest(const std::vector<RateTrial>& trials) {
  size_t best = trials.size();
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].loss && (best == trials.size() || *trials[i].loss < *trials[best].loss)) best = i;
  return best;
}

// Where the best is the first or the last, one further; 0: none.
double next_rate(const RateCurve& curve) {
  const auto& trials = curve.trials;
  if (trials.size() >= kMostTrials) return 0;
  const size_t best = lowest(trials);
  if (best == trials.size() || best == 0) return rounded(trials.front().rate / 2);
  if (best + 1 == trials.size()) return rounded(trials.back().rate * 2);
  return 0;
}

// A curve with all that its rule asks for.
RateCurve sweep(const Plan& plan, const Cell& cell, const Results& results, std::vector<Job>& jobs,
                bool& complete) {
  std::set<double> rates;
  for (const double multiple : plan.data.rate.sweep)
    rates.insert(rounded(multiple * kUsualRate * scale(cell.shape)));
  while (true) {
    std::vector<Job> known;
    RateCurve curve = read_curve(cell, Purpose::kSweep, rates, results, known, complete);
    const double next = complete ? next_rate(curve) : 0;
    if (next == 0) {
      jobs.insert(jobs.end(), known.begin(), known.end());
      return curve;
    }
    rates.insert(next);
  }
}

void set_constant(Tuning& tuning) {
  double sum = 0;
  int count = 0;
  for (const RateCurve& curve : tuning.sweep) {
    if (curve.best <= 0) continue;
    sum += std::log(curve.best / scale(curve.shape));
    ++count;
  }
  tuning.constant = count > 0 ? std::exp(sum / count) : 0;
}

void check(const Plan& plan, const std::vector<Shape>& shapes, Tuning& tuning,
           const Results& results, TuningState& state) {
  if (shapes.size() <= kSweptSizes || tuning.constant == 0) return;
  const Shape& shape = shapes[kSweptSizes];
  const Cell cell = trial_cell(plan, shape, tuning.method, tuning.qk_norm);
  const double rate = tuning.rate_for(shape);
  std::set<double> rates;
  for (const double factor : {0.5, 1.0, 2.0}) rates.insert(rounded(factor * rate));
  bool complete = false;
  const RateCurve curve = read_curve(cell, Purpose::kCheck, rates, results, state.jobs, complete);
  if (complete) tuning.check = curve;
}

}  // namespace

double best_rate(const std::vector<RateTrial>& trials) {
  const size_t best = lowest(trials);
  if (best == trials.size()) return 0;
  const bool inside = best > 0 && best + 1 < trials.size();
  if (!inside || !trials[best - 1].loss || !trials[best + 1].loss) return trials[best].rate;
  // In the logarithm of the rate, in units that need not be equal.
  const double x0 = std::log(trials[best - 1].rate / trials[best].rate);
  const double x2 = std::log(trials[best + 1].rate / trials[best].rate);
  const double y0 = *trials[best - 1].loss - *trials[best].loss;
  const double y2 = *trials[best + 1].loss - *trials[best].loss;
  const double curvature = (y2 / x2 - y0 / x0) / (x2 - x0);
  const double slope = y0 / x0 - curvature * x0;
  if (!(curvature > 0)) return trials[best].rate;
  return trials[best].rate * std::exp(std::clamp(-slope / (2 * curvature), x0 / 2, x2 / 2));
}

double Tuning::rate_for(const Shape& shape) const {
  return constant > 0 ? rounded(constant * scale(shape)) : 0;
}

const Tuning* TuningState::find(const Cell& cell) const {
  for (const Tuning& tuning : tunings)
    if (tuning.method == cell.method && tuning.qk_norm == cell.qk_norm) return &tuning;
  return nullptr;
}

TuningState tune(const Plan& plan, const Results& results) {
  TuningState state;
  const auto shapes = sizes_of(plan);
  std::set<std::pair<std::string, nn::QkNorm>> seen;
  for (const Cell& cell : plan.cells) {
    if (!seen.emplace(cell.method, cell.qk_norm).second) continue;
    Tuning tuning{.method = cell.method, .qk_norm = cell.qk_norm, .sweep = {}, .check = {}};
    if (plan.data.rate.fixed > 0) {
      tuning.constant = plan.data.rate.fixed;
      state.tunings.push_back(tuning);
      continue;
    }
    bool all_complete = true;
    for (size_t i = 0; i < std::min(kSweptSizes, shapes.size()); ++i) {
      bool complete = false;
      tuning.sweep.push_back(sweep(plan, trial_cell(plan, shapes[i], cell.method, cell.qk_norm),
                                   results, state.jobs, complete));
      all_complete = all_complete && complete;
    }
    if (!all_complete) continue;
    set_constant(tuning);
    check(plan, shapes, tuning, results, state);
    state.tunings.push_back(std::move(tuning));
  }
  return state;
}

std::vector<std::string> left_out(const Plan& plan, const TuningState& state) {
  std::vector<std::string> lines;
  for (const Tuning& tuning : state.tunings) {
    if (tuning.constant > 0) continue;
    const auto models = std::ranges::count_if(
        plan.cells, [&](const Cell& cell) { return state.find(cell) == &tuning; });
    lines.push_back(concat("no learning rate of ", tuning.method,
                           tuning.qk_norm == nn::QkNorm::kNone
                               ? ""
                               : concat(" with QK-norm ", name_of(tuning.qk_norm)),
                           " trained: ", models, " models left out"));
  }
  return lines;
}

}  // namespace tempera::study::scaling
