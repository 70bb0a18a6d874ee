#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tempera/kernels/reference/problem.h"

// What the tests of passes share: named tensors, numbers to fill them with, and the rule by which a
// kernel is right.
namespace tempera::kernels {

template <class R>
using Tensors = std::map<std::string, std::vector<R>>;

template <class R>
const std::vector<R>& named(const Tensors<R>& tensors, const std::string& name) {
  static const std::vector<R> none;
  const auto found = tensors.find(name);
  return found == tensors.end() ? none : found->second;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  std::vector<To> result;
  for (const From value : values) result.push_back(from_double<To>(to_double(value)));
  return result;
}

template <class To, class From>
Tensors<To> converted(const Tensors<From>& tensors) {
  Tensors<To> result;
  for (const auto& [name, values] : tensors) result[name] = converted<To>(values);
  return result;
}

// Normal numbers that are exact in T.
template <class T>
std::vector<double> normal_numbers(std::mt19937_64& engine, int64_t count, double mean = 0,
                                   double deviation = 1) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(to_double(from_double<T>(normal(engine))));
  return values;
}

// Elements that nobody wrote are NaN, and fail every comparison.
template <class T>
std::vector<T> poisoned(size_t count) {
  std::vector<T> values(count);
  std::memset(static_cast<void*>(values.data()), 0xFF, count * sizeof(T));
  return values;
}

// Right: within twice the error of the naive arithmetic in float, rounded to T, and a little.
template <class T, class A>
void expect_close(const std::string& what, const std::vector<A>& actual,
                  const std::vector<double>& exact, const std::vector<float>& naive,
                  double terms = 1) {
  ASSERT_EQ(actual.size(), exact.size()) << what;
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double rounded = to_double(from_double<A>(to_double(naive[i])));
    error = std::max(error, std::abs(rounded - exact[i]));
    size = std::max(size, std::abs(exact[i]));
  }
  const double small = std::is_same_v<A, float> ? 5e-6 : 1.0 / 1024;
  const double bound = 2 * error + small * (std::sqrt(terms) + size);
  int reported = 0;
  for (size_t i = 0; i < exact.size() && reported < 3; ++i) {
    if (std::abs(to_double(actual[i]) - exact[i]) <= bound) continue;
    ++reported;
    ADD_FAILURE() << what << "[" << i << "] is " << to_double(actual[i]) << ", expected "
                  << exact[i] << " within " << bound;
  }
}

using KernelTypes = testing::Types<float, BFloat16>;

}  // namespace tempera::kernels
