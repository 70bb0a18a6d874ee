#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tempera/kernels/extent.h"
#include "tempera/kernels/reference/cases.h"

// Makes the memory and the parameters of a case.
namespace tempera::kernels {

// The type that a problem's numbers are rounded to, so that an oracle in double precision sees the
// very numbers of a float or bf16 kernel.
enum class Precision { kDouble, kFloat, kBFloat16 };

template <class T>
T from_double(double value);  // to the nearest, ties to even
template <class T>
double to_double(T value);

// Rows in memory of their own, with guard bands around and, by layout, gaps between. All memory
// starts as NaNs: an element that a kernel forgot to write, or wrote without right, shows.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Extent& extent, LayoutCase layout, int64_t offset);

  const Extent& extent() const { return extent_; }
  Rows<T> rows() { return {first(), strides_.batch, strides_.head, strides_.row}; }
  Rows<const T> input() { return {first(), strides_.batch, strides_.head, strides_.row}; }
  T* first() { return memory_.data() + first_; }
  std::vector<T>& memory() { return memory_; }  // guard bands and gaps included
  T& at(int64_t index);  // in the order (batch, head, row, column), whatever the layout

  void fill(const std::vector<double>& values);
  std::vector<double> values() const;
  void poison();
  // Nothing but the elements themselves has been written to.
  bool guards_intact() const;

 private:
  int64_t position(int64_t index) const;

  Extent extent_;
  Rows<T> strides_;  // without data
  int64_t first_ = 0;
  std::vector<T> memory_;
};

// A tensor as a test sees it.
struct Result {
  std::string name;
  Extent extent;
  std::vector<double> values;
  bool real = false;  // of type Real<T>, not T
  bool guards_intact = false;

  std::string place(size_t index) const;  // "out[batch, head, row, column]"
};

template <class T>
class Problem {
 public:
  Problem(const Case& settings, Precision precision, uint64_t seed = 1);
  Problem(const Problem&) = delete;  // the parameters point into it
  Problem& operator=(const Problem&) = delete;

  const Case& settings() const { return settings_; }
  // Free to change: a test may bend a setting.
  AttentionParams<T>& params() { return params_; }
  DecodeParams<T> decode_params() const;
  AttentionOutputs<T> outputs();
  AttentionGradients<T> gradients();

  // Inputs, outputs and gradients by name: q, q_scale.rows, q_scale.w, bias, sinks, out, lse, d_q,
  // d_q_scale.w ... The gradient of the input x is d_x. d_out and d_lse are inputs.
  std::map<std::string, Tensor<T>>& tensors() { return tensors_; }
  std::map<std::string, Tensor<Real<T>>>& reals() { return reals_; }

  std::vector<Result> output_results() const { return results(output_names_); }
  std::vector<Result> gradient_results() const { return results(gradient_names_); }
  void poison_results();

 private:
  void make_mask();
  void make_cache();
  void make_scale(const std::string& name, const ScaleCase& parts, const std::string& operand,
                  Scale<T>& scale);
  void make_extras();
  void make_outputs();
  void make_gradients();
  void make_scale_gradient(const std::string& name, const ScaleCase& parts, bool wanted);
  ScaleGradient<T> scale_gradient(const std::string& name);
  std::vector<Result> results(const std::vector<std::string>& names) const;

  Rows<T> tensor(const std::string& name);
  Rows<Real<T>> real(const std::string& name);
  Real<T>* numbers(const std::string& name);
  Tensor<T>& add_tensor(const std::string& name, const Extent& extent);
  Tensor<Real<T>>& add_real(const std::string& name, const Extent& extent);
  Real<T>* add_numbers(const std::string& name, int64_t heads, int64_t size);
  // Normal numbers, mean + deviation * n, rounded to the problem's precision.
  std::vector<double> random(const std::string& name, int64_t count, double mean, double deviation,
                             bool is_real);

  Case settings_;
  Precision precision_;
  uint64_t seed_;
  std::map<std::string, Tensor<T>> tensors_;
  std::map<std::string, Tensor<Real<T>>> reals_;
  std::vector<std::string> output_names_, gradient_names_;
  VisibleRanges ranges_;
  std::vector<int32_t> block_table_;
  AttentionParams<T> params_;
};

}  // namespace tempera::kernels
