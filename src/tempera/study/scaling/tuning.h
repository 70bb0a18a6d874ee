#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tempera/study/scaling/job.h"

// One learning rate for every method and norm of queries and keys, found by the same rule:
//
//   sweep     at the two smallest sizes, with the fewest tokens and the shortest context of the
//             grid; where the best rate is the first or the last, further ones by factors of 2
//   transfer  the rate falls with the root of the width; the constant is the geometric mean of the
//             best rates of the sizes that were swept
//   check     at the third size, half and twice the rate beside it
namespace tempera::study::scaling {

// The result of a job, if it is there.
using Results = std::function<const JobResult*(const Job&)>;

// What one learning rate gave.
struct RateTrial {
  double rate = 0;
  std::optional<double> loss;  // none unless it is done
  Outcome outcome = Outcome::kDone;
};

// The rates of one size.
struct RateCurve {
  Shape shape;
  std::vector<RateTrial> trials;  // by rising rate
  double best = 0;                // by a parabola through the lowest and its neighbours; 0: none
};

struct Tuning {
  std::string method;
  nn::QkNorm qk_norm = nn::QkNorm::kNone;
  std::vector<RateCurve> sweep;
  std::optional<RateCurve> check;
  double constant = 0;  // the rate at a width of 128; 0: none trained

  double rate_for(const Shape& shape) const;  // 0: none
};

struct TuningState {
  std::vector<Tuning> tunings;  // as far as they are complete
  std::vector<Job> jobs;        // all of them, as far as they are known, done or not
  const Tuning* find(const Cell& cell) const;
};

TuningState tune(const Plan& plan, const Results& results);

// What is left out because no learning rate of it trained: a sentence each.
std::vector<std::string> left_out(const Plan& plan, const TuningState& state);

// The rate of the least loss; 0 where none has one.
double best_rate(const std::vector<RateTrial>& trials);

}  // namespace tempera::study::scaling
