#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "tempera/nn/config.h"
#include "tempera/ops/fused.h"

// The smallest modules. Their parameters have no values until a model is initialised or loaded, and
// are used in the type of the rows that come in, so that 32-bit weights serve a bfloat16 pass.
namespace tempera::nn {

class Linear final : public torch::nn::Module {
 public:
  // With an adapter of rank above 0: x W^T + alpha / rank * (x A^T) B^T.
  Linear(int64_t inputs, int64_t outputs, bool bias, const LoraConfig& lora = {});
  torch::Tensor forward(const torch::Tensor& x) const;
  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }  // undefined: none
  // Another tensor of the same sizes, which nothing is learned of: ops::block_tensor(). Throws
  // where they differ.
  void set_weight(const torch::Tensor& weight);

 private:
  torch::Tensor weight_;  // (outputs, inputs)
  torch::Tensor bias_;
  torch::Tensor lora_a_, lora_b_;  // (rank, inputs), (outputs, rank)
  double lora_scale_ = 0;
};

class Embedding final : public torch::nn::Module {
 public:
  Embedding(int64_t rows, int64_t width);
  torch::Tensor forward(const torch::Tensor& index, torch::ScalarType type = torch::kFloat32) const;
  const torch::Tensor& weight() const { return weight_; }
  // As that of Linear.
  void set_weight(const torch::Tensor& weight);

 private:
  torch::Tensor weight_;  // (rows, width)
};

// The residual stream. What the last part of a pre-norm block adds stays open, so that the norm
// behind it sums and normalises in one pass.
struct Residual {
  torch::Tensor x;
  torch::Tensor added = {};  // undefined: nothing is open
  torch::Tensor whole() const { return added.defined() ? x + added : x; }
};

class Norm final : public torch::nn::Module {
 public:
  Norm(NormKind kind, int64_t width, double eps);
  torch::Tensor forward(const torch::Tensor& x) const;
  // Of the whole sum, which has no open share then.
  torch::Tensor forward(Residual& sum) const;

 private:
  NormKind kind_;
  double eps_;
  torch::Tensor weight_, bias_;
};

// Of rows (..., columns); a gated one takes twice the columns, gate and up, that it gives.
torch::Tensor activate(Activation activation, const torch::Tensor& rows);

class Mlp final : public torch::nn::Module {
 public:
  explicit Mlp(const ModelConfig& config);
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> in_;  // gated: gate and up in one matrix
  std::shared_ptr<Linear> out_;
};

}  // namespace tempera::nn
