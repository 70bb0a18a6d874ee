#pragma once

#include "tempera/base/error.h"
#include "tempera/text/jinja/eval.h"

namespace tempera::text::jinja {

// Each level takes a few frames of the stack, so that there may not be too many.
class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& evaluator) : depth_(evaluator.depth_) {
    evaluator.budget_.steps(1);
    TEMPERA_CHECK(depth_ < kDeepest, "the template calls itself, or nests, deeper than ", kDeepest,
                  " levels");
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static constexpr int kDeepest = 1000;
  int& depth_;
};

}  // namespace tempera::text::jinja
