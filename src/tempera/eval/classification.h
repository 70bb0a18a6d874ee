#pragma once

#include <cstdint>
#include <span>
#include <vector>

// How often classes are told right. No torch.
namespace tempera::eval {

struct ClassScores {
  double accuracy = 0;
  double f1_macro = 0;                   // mean over the classes that were asked for or answered
  std::vector<double> f1_of_class = {};  // 0 where nothing is right
  int64_t examples = 0;

  // With two classes: of class 1, as binary tasks count it.
  double f1_binary() const;
};

// Classes count from 0 and are below `classes`; throws for others, and unless both lists have the
// same size, at least one.
ClassScores score_classes(std::span<const int64_t> answers, std::span<const int64_t> right,
                          int64_t classes);

}  // namespace tempera::eval
