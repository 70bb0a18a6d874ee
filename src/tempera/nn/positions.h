#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "tempera/nn/config.h"

namespace tempera::nn {

// The arguments of ops::rotary beside the rows; undefined tables: nothing rotates.
struct Angles {
  torch::Tensor cos, sin;   // (length, r/2) float32
  torch::Tensor positions;  // (B, T): the row of the tables; undefined: t

  // Gradients flow back to the tables.
  bool learned() const { return cos.defined() && cos.requires_grad(); }
};

// Cosines and sines of position * frequency, kept for the longest length seen.
class RotaryTable {
 public:
  // size: the columns that rotate. context: what the model was trained at.
  RotaryTable(const RopeConfig& rope, int64_t size, int64_t context)
      : rope_(rope), size_(size), context_(context) {}

  // Of the positions [first, first + rows) in sequences of `length`, which some scalings depend on.
  Angles range(int64_t first, int64_t rows, int64_t length, const torch::Device& device);
  // Of the positions (B, T) int64; padding, -1, counts as 0. They are below `length`.
  Angles at(const torch::Tensor& position, int64_t length);

 private:
  void reserve(int64_t length, const torch::Device& device);

  RopeConfig rope_;
  int64_t size_;
  int64_t context_;
  int64_t regime_ = 0;  // of the lengths that the table is for
  Angles table_;
};

// The angle a position adds to each pair of columns, (size / 2) float64, in a sequence of `length`.
torch::Tensor rotary_frequencies(const RopeConfig& rope, int64_t size, int64_t context,
                                 int64_t length);
// Lengths with the same number have the same frequencies: with most scalings all have, with dynamic
// scaling each beyond the trained one has its own.
int64_t rotary_regime(const RopeConfig& rope, int64_t context, int64_t length);
// What cosines and sines are multiplied by.
double rotary_amplitude(const RopeConfig& rope);

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
