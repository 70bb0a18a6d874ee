#pragma once

#include <map>
#include <string>
#include <tuple>

#include "tempera/study/scaling/job.h"

namespace tempera::study::scaling {

// Bytes that a training needs, about: weights, gradients and two moments, and what its rows leave
// for the way back.
double memory_estimate(const Cell& cell, int64_t vocabulary);

// Seconds that models take here, from short probes of every shape.
class Speeds {
 public:
  using Key = std::tuple<Shape, int64_t, config::Dtype>;
  static Key key(const Cell& cell) { return {cell.shape, cell.context, cell.dtype}; }

  bool has(const Cell& cell) const { return seconds_.contains(key(cell)); }
  // Of a trained token while all workers are busy.
  void set(const Cell& cell, double seconds_per_token) { seconds_[key(cell)] = seconds_per_token; }
  double seconds(const Job& job, const StudyData& data) const;
  double seconds_per_token(const Cell& cell) const { return seconds_.at(key(cell)); }

  std::string dump(int64_t workers, const std::string& device) const;
  // Nothing where they were measured with other workers, or on another device.
  void load(const std::string& text, int64_t workers, const std::string& device);

 private:
  std::map<Key, double> seconds_;
};

}  // namespace tempera::study::scaling
