#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tempera/temperature/method.h"

namespace tempera::bench {

// A causal self-attention; a row of values is as wide as one of queries.
struct AttentionShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t length = 1;
  int64_t size = 1;
  torch::ScalarType type = torch::kFloat32;

  // Of the products that causality leaves; a backward pass has 2.5 times the forward one's.
  double forward_flops() const;
  double step_flops() const { return 3.5 * forward_flops(); }
  LayerShape layer_shape() const;  // of a model with one such layer
  void check() const;              // throws UsageError where the kernels do not have it
  std::string text() const;        // "B 1, H 8, T 1024, D 64, fp32"
};

const char* type_name(torch::ScalarType type);  // fp32, bf16
torch::ScalarType type_of(const std::string& name);

enum class Side { kOurs, kTorch };

// The same attention with the same temperature twice: the method's recipe inside our operator, and
// the scales written in torch in front of scaled_dot_product_attention.
class AttentionPair {
 public:
  // Random rows; the parameters of the method are moved off their plain start.
  static LayerInputs make_inputs(const AttentionShape& shape);
  AttentionPair(const AttentionShape& shape, const LayerInputs& inputs, const std::string& method);

  const std::string& method() const { return name_; }
  torch::Tensor forward(Side side) const;
  // The output and the gradients of q, k, v, the layer's input and the method's parameters, for a
  // fixed gradient of the output; undefined where the output does not depend on them.
  std::vector<torch::Tensor> step(Side side) const;
  // The largest difference between the two sides, in units of the tensor's largest element. Throws
  // Error where it is more than rounding can explain.
  double check() const;

 private:
  torch::Tensor ours() const;
  torch::Tensor theirs() const;

  AttentionShape shape_;
  std::string name_;
  LayerInputs inputs_;
  std::shared_ptr<Method> implementation_;
  std::vector<torch::Tensor> leaves_;
  torch::Tensor d_out_;
};

// The largest difference in units of the largest element of `expected`.
double relative_error(const torch::Tensor& actual, const torch::Tensor& expected);
// What rounding may be off between two ways of computing the same in this type. Gradients of a
// method's parameters are sums over all rows whose terms cancel, and torch's side rounds the terms.
double error_limit(torch::ScalarType type, bool of_parameter = false);

}  // namespace tempera::bench
