#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/study/methods.h"
#include "tempera/study/study.h"
#include "tempera/temperature/method.h"

namespace tempera::study {

// One attention head by itself: one query row a context, the projections of its operands given.
// Nothing in it knows the order of a context.
struct ToyInputs {
  torch::Tensor query;    // (B, 1, width)
  torch::Tensor context;  // (B, n, width)
  torch::Tensor q;        // (B, 1, 1, size)
  torch::Tensor k;        // (B, 1, n, size)
  torch::Tensor v;        // (B, 1, n, value size)
};

struct ToyOutput {
  torch::Tensor out;  // (B, value size)
  torch::Tensor a_q;  // (B): the query's scale
  torch::Tensor a_v;  // (B, n): the values' scales
  bool scales_values = false;
};

struct ToyShape {
  int64_t width = 0;
  int64_t size = 0;        // of queries and keys; a multiple of 8, as the kernels ask for
  int64_t value_size = 0;  // of values
  int64_t context = 0;     // longest context of training
};

std::shared_ptr<Method> make_toy_method(const NamedMethod& method, const ToyShape& shape);

// By the attention operator and the method; scales are 1 where the method has none.
ToyOutput toy_attention(Method& method, const ToyInputs& inputs);
// The weight (B) that the same layer puts on the keys where `chosen` (n) is 1.
torch::Tensor toy_weight_on(Method& method, const ToyInputs& inputs, const torch::Tensor& chosen);

// A matrix (outputs, inputs) uniform in ±1/sqrt(inputs), to be learned.
torch::Tensor toy_matrix(int64_t outputs, int64_t inputs, at::Generator& random);
// A generator of its own for every purpose of a seed.
at::Generator toy_random(int64_t seed, const char* purpose);

// The learned tensors: the matrices by name, and the method's parameters.
std::vector<nn::NamedParameter> toy_parameters(
    const std::vector<std::pair<std::string, torch::Tensor>>& matrices, Method& method);

// AdamW over settings.steps steps, the rate rising over a twentieth of them and then falling to 0.
// before(step) comes before each step, and once more after the last.
void toy_train(const ToySettings& settings, std::vector<nn::NamedParameter> parameters,
               const std::function<torch::Tensor(int64_t step)>& loss,
               const std::function<void(int64_t step)>& before);

}  // namespace tempera::study
