#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tempera/study/scaling/job.h"

namespace tempera::study::scaling {

// Of the jobs, those that a budget of seconds has room for when the least informative go first.
//
// Models that differ in nothing but the method stay or go together. How informative such a group
// is: how much smaller the determinant of the fit's information would be without it (the slopes of
// ln L of a usual law at its size and tokens, among those of the same context and norm), for each
// second that it takes. What is done already informs and takes no time.
struct Candidate {
  Cell cell;
  double seconds = 0;  // 0: done
};
// Whether each candidate stays. `seconds`: what all of them may take together.
std::vector<bool> choose(std::span<const Candidate> candidates, double seconds);

}  // namespace tempera::study::scaling
