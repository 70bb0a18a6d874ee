#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tempera/study/scaling/conductor.h"
#include "tempera/study/scaling/savings.h"

// What the results of a study say.
namespace tempera::study::scaling {

// What goes into the same fits: models of one trained length and norm. cells[i].losses[m] are those
// of methods[m] of the study, by seed.
struct Slice {
  int64_t context = 0;
  nn::QkNorm qk_norm = nn::QkNorm::kNone;
  std::vector<Shape> shapes;  // of each cell
  std::vector<LossCell> cells;
  LawStudy laws;
};

// A method's loss less that of the first method, over the same seeds.
struct Difference {
  Cell cell;  // without a seed
  std::vector<double> seeds;
  double mean = 0;
  double half_width = 0;  // of the 95 % interval of the mean; 0: one seed has none
};

// Losses, or recall, of a kind of model by the length of the rows: means over the seeds.
struct ByLength {
  Cell cell;
  int64_t seeds = 0;
  std::vector<int64_t> lengths;
  std::vector<double> losses, recall;
};

// How the difference from the first method moves with the trained length.
struct ContextGain {
  Shape shape;
  int64_t tokens = 0;
  nn::QkNorm qk_norm = nn::QkNorm::kNone;
  std::string method;
  std::vector<int64_t> contexts;
  std::vector<double> differences;  // means over the seeds
  double slope = 0;                 // for each doubling
  double half_width = 0;            // of its 95 % interval over the seeds; 0: one seed has none
};

struct TaskMean {
  Cell cell;
  std::string task, metric;
  double mean = 0, half_width = 0;
};

// Entropy of attention at the trained length, as a share of its largest, and how much the loss
// grows from there to the longest rows: of every model.
struct EntropyPoint {
  std::string method;
  double entropy = 0, growth = 0;
};

struct Analysis {
  std::vector<std::string> methods;
  std::vector<Slice> slices;
  std::vector<Difference> differences;
  std::vector<ByLength> lengths;
  std::vector<ContextGain> context_gains;
  std::vector<TaskMean> tasks;
  std::vector<EntropyPoint> entropy;
  std::optional<Interval> entropy_correlation;  // of ranks (Spearman's)
  std::vector<JobResult> failures;
  double most_passes = 0;  // over the text
};

// More passes over a text learn it by heart rather than read it.
inline constexpr double kMostPasses = 4;

Analysis analyse(const Plan& plan, const std::vector<JobResult>& results);

nlohmann::ordered_json to_json(const Analysis& analysis);

// Spearman's rank correlation.
double rank_correlation(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace tempera::study::scaling
