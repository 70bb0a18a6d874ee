#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/reference/attention.h"
#include "tempera/kernels/reference/problem.h"

// How the tests of every backend compare a kernel with the reference.
namespace tempera::kernels {

// bf16_out: the backward pass reads, and the results show, what is left of T's numbers in bf16.
template <class R>
std::vector<Result> run_reference(Problem<R>& problem, bool bf16_out,
                                  reference::Weights weights = {}) {
  const auto round = [bf16_out](std::vector<Result> results) {
    for (Result& result : results)
      if (bf16_out && !result.real)
        for (double& value : result.values) value = to_double(from_double<BFloat16>(value));
    return results;
  };
  if (problem.settings().decodes()) {
    reference::decode(problem.decode_params(), problem.outputs(), weights);
    return round(problem.output_results());
  }
  reference::forward(problem.params(), problem.outputs(), weights);
  std::vector<Result> results = round(problem.output_results());
  problem.tensors().at("out").fill(results[0].values);
  reference::backward(problem.params(), problem.gradients(), weights);
  for (Result& gradient : round(problem.gradient_results())) results.push_back(std::move(gradient));
  return results;
}

template <class T>
constexpr Precision kPrecision =
    std::is_same_v<T, BFloat16> ? Precision::kBFloat16 : Precision::kFloat;

inline bool is_gradient(const Result& result) { return result.name.starts_with("d_"); }

inline double max_error(const Result& actual, const Result& exact) {
  double error = 0;
  for (size_t i = 0; i < exact.values.size(); ++i)
    if (std::isfinite(exact.values[i]))
      error = std::max(error, std::abs(actual.values[i] - exact.values[i]));
  return error;
}

inline double max_size(const Result& exact) {
  double size = 0;
  for (const double value : exact.values)
    if (std::isfinite(value)) size = std::max(size, std::abs(value));
  return size;
}

// What a fast kernel may be off: twice the largest error of the naive arithmetic in the same
// precision, as a rule of thumb that needs no analysis of each tensor, and a small constant for
// tensors on which the naive one happens to be nearly exact. Inputs are of the order of 1 (queries:
// of the case's magnitude), and so are the terms that cancel in gradients, hence its absolute part;
// logits of size m carry an error of m * 2^-24, a relative one of probabilities.
template <class T>
double tolerance(const Case& c, const Result& naive, const Result& exact) {
  constexpr double kSmall = 5e-6;
  constexpr double kUnit = 1.0 / (1 << 24);
  const bool rounded = std::is_same_v<T, BFloat16> && (!exact.real || is_gradient(exact));
  const double small = rounded ? 1.0 / 1024 : kSmall;
  // The gradient of a head's number is a sum over rows of dot products, whose errors add up like a
  // random walk.
  const bool summed = is_gradient(exact) && exact.extent.rows == 1;
  const double terms =
      summed ? static_cast<double>(c.shape.batch * std::max(c.shape.q_rows, c.shape.kv_rows) *
                                   std::max(c.shape.qk_size, c.shape.v_size))
             : 1;
  return 2 * max_error(naive, exact) +
         small * (c.magnitude * std::sqrt(std::max(terms, 1.0)) + max_size(exact)) +
         kUnit * c.magnitude * max_size(exact);
}

template <class T>
void expect_agreement(const Case& c, const std::vector<Result>& actual,
                      const std::vector<Result>& naive, const std::vector<Result>& exact) {
  ASSERT_EQ(actual.size(), exact.size());
  for (size_t r = 0; r < exact.size(); ++r) {
    const double bound = tolerance<T>(c, naive[r], exact[r]);
    EXPECT_TRUE(actual[r].guards_intact) << c.name << ": wrote beside " << actual[r].name;
    int reported = 0;
    for (size_t i = 0; i < exact[r].values.size() && reported < 3; ++i) {
      const double value = actual[r].values[i];
      const double expected = exact[r].values[i];
      const bool close =
          std::isfinite(expected) ? std::abs(value - expected) <= bound : value == expected;
      if (close) continue;  // a NaN is never close
      ++reported;
      ADD_FAILURE() << c.name << ": " << actual[r].place(i) << " is " << value << ", expected "
                    << expected << " within " << bound;
    }
  }
}

inline void expect_equal(const Case& c, const std::vector<Result>& x,
                         const std::vector<Result>& y) {
  for (size_t r = 0; r < x.size(); ++r)
    for (size_t i = 0; i < x[r].values.size(); ++i)
      ASSERT_EQ(x[r].values[i], y[r].values[i]) << c.name << ": " << x[r].place(i);
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases = attention_cases();
  cases.insert(cases.end(), decode_cases().begin(), decode_cases().end());
  return cases;
}

inline Case case_named(const std::string& name) {
  for (const Case& c : all_cases())
    if (c.name == name) return c;
  throw Error(concat("there is no case '", name, "'"));
}

struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float> ? "float" : "bf16";
  }
};

}  // namespace tempera::kernels
