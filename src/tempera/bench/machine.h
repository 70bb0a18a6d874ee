#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

// What the machine can do at most, measured in the same run as the contenders.
namespace tempera::bench {

// Bytes that the last-level cache cannot hold even a half of.
int64_t uncached_bytes();

// The rate of torch's own matrix product of two 2048 x 2048 matrices.
class MatmulCeiling {
 public:
  explicit MatmulCeiling(torch::ScalarType type);
  void sample();          // one product; the first one warms up
  double gflops() const;  // the median of the samples

 private:
  torch::Tensor a_, b_, c_;
  std::vector<double> seconds_;
};

// Sums a buffer that no cache holds, with all threads.
class ReadSweep {
 public:
  ReadSweep();
  void run();
  double gbps(double seconds) const;
  // Copies one half of the buffer onto the other; bytes read and written count.
  void copy();

 private:
  torch::Tensor buffer_;
  uint64_t sum_ = 0;  // keeps the compiler from leaving the reading out
};

// Processor, instruction set of the kernels, threads, torch's version.
nlohmann::ordered_json machine_description();

}  // namespace tempera::bench
