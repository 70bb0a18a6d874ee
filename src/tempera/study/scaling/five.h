#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

// Vectors and symmetric matrices of the five numbers of a law.
namespace tempera::study::scaling {

inline constexpr size_t kFive = 5;
using Five = std::array<double, kFive>;
using FiveByFive = std::array<Five, kFive>;

// matrix += weight * row row^T
inline void add_square(FiveByFive& matrix, const Five& row, double weight) {
  for (size_t i = 0; i < kFive; ++i)
    for (size_t j = 0; j < kFive; ++j) matrix[i][j] += weight * row[i] * row[j];
}

// x with matrix x = right, by Cholesky's factors; none unless the matrix is positive definite.
inline std::optional<Five> solve(FiveByFive matrix, Five right) {
  for (size_t i = 0; i < kFive; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (size_t k = 0; k < j; ++k) sum -= matrix[i][k] * matrix[j][k];
      if (i != j) {
        matrix[i][j] = sum / matrix[j][j];
      } else if (sum > 0) {
        matrix[i][i] = std::sqrt(sum);
      } else {
        return std::nullopt;
      }
    }
    for (size_t k = 0; k < i; ++k) right[i] -= matrix[i][k] * right[k];
    right[i] /= matrix[i][i];
  }
  for (size_t i = kFive; i-- > 0;) {
    for (size_t k = i + 1; k < kFive; ++k) right[i] -= matrix[k][i] * right[k];
    right[i] /= matrix[i][i];
  }
  return right;
}

}  // namespace tempera::study::scaling
