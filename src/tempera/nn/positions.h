#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace tempera::nn {

// The arguments of ops::rotary beside the rows; undefined tables: nothing rotates.
struct Angles {
  torch::Tensor cos, sin;   // (length, r/2) float32
  torch::Tensor positions;  // (B, T): the row of the tables; undefined: t
};

// Cosines and sines of position * base^(-2i/r), kept for the longest length seen.
class RotaryTable {
 public:
  RotaryTable(int64_t size, double base) : size_(size), base_(base) {}

  void set_base(double base);
  // Of the positions [first, first + rows).
  Angles range(int64_t first, int64_t rows, const torch::Device& device);
  // Of the positions (B, T) int64; padding, -1, counts as 0. They are below `length`.
  Angles at(const torch::Tensor& position, int64_t length);

 private:
  void reserve(int64_t length, const torch::Device& device);

  int64_t size_;  // r: columns that rotate
  double base_;
  Angles table_;
};

// Fixed waves, (B, T, width) for the positions (B, T): sines in the even columns, cosines in the
// odd ones, wave lengths from 2 pi to 10,000 times that.
torch::Tensor sinusoidal(const torch::Tensor& position, int64_t width);

// T5's learned bias by distance: near distances each have a number a head, far ones share it on a
// logarithmic scale.
class RelativeBias final : public torch::nn::Module {
 public:
  RelativeBias(int64_t heads, bool bidirectional);

  // (1, heads, rows, keys) of the queries at [first, first + rows) among the keys at [0, keys).
  torch::Tensor forward(int64_t first, int64_t rows, int64_t keys) const;

 private:
  bool bidirectional_;
  torch::Tensor weight_;  // (buckets, heads)
};

}  // namespace tempera::nn
