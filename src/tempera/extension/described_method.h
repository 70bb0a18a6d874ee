#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tempera/temperature/method.h"

// A method as Python holds it: a text that says which and for what layer, and its numbers as a list
// of tensors. The formulas are those of the program.
namespace tempera::extension {

// JSON: {"temperature": the group of a model's settings, "shape": of the layer}.
class DescribedMethod {
 public:
  explicit DescribedMethod(const std::string& description);

  Method& method() { return *method_; }
  // Parameters, then buffers, by the names that checkpoints have.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<torch::Tensor>& numbers() const { return numbers_; }
  size_t parameter_count() const { return parameters_; }
  // The places of the list of row_scales() that hold something.
  std::vector<size_t> results();
  // Throws unless there is a tensor of the right shape for every name.
  void set_numbers(const std::vector<torch::Tensor>& numbers);

 private:
  std::shared_ptr<Method> method_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> numbers_;
  size_t parameters_ = 0;
};

// What a layer's input says beside the numbers.
struct RowInputs {
  torch::Tensor x;         // (B, T, width)
  torch::Tensor n;         // (B, T)
  torch::Tensor position;  // (B, T)
  torch::Tensor tokens;    // (B, T); undefined: the method reads none
  torch::Tensor past;      // (B, state_width()); undefined: no rows before
  // Of a cross-attention, the rows of its keys: x, n and position; empty: the same rows.
  std::vector<torch::Tensor> keys = {};

  RowInfo key_rows() const;
};

// Where a scale's parts stand in the list that a pass returns.
enum Part : size_t { kRows, kW, kG, kC, kS, kParts };
enum Side : size_t { kQuery, kKey, kValue, kSides };
inline constexpr size_t kState = size_t{kParts} * size_t{kSides};
inline constexpr size_t kResults = kState + 1;

// For queries, keys and values: finished rows (B, heads, T), and a recipe whose w reads the raw
// projection; then the state. Undefined: no such part.
std::vector<torch::Tensor> row_scales(Method& method, const RowInputs& inputs);

}  // namespace tempera::extension
