// Products of matrices against sums in double precision.
#include "tempera/kernels/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

namespace tempera::kernels {
namespace {

std::vector<float> random_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(random);
  return numbers;
}

struct Size {
  int64_t rows, columns, depth;
  int64_t gap = 0;  // elements between the end of a row and the next

  friend std::ostream& operator<<(std::ostream& out, const Size& s) {
    return out << s.rows << " x " << s.columns << " x " << s.depth << " gap " << s.gap;
  }
};

// A and B, each as it is or transposed in memory.
struct Operands {
  Operands(const Size& s, bool a_transposed, bool b_transposed)
      : size(s),
        a(random_numbers(a_transposed ? s.depth * (s.rows + s.gap) : s.rows * (s.depth + s.gap),
                         1)),
        b(random_numbers(
            b_transposed ? s.columns * (s.depth + s.gap) : s.depth * (s.columns + s.gap), 2)),
        c(static_cast<size_t>(s.rows * (s.columns + s.gap)), kUntouched) {
    params.rows = s.rows;
    params.columns = s.columns;
    params.depth = s.depth;
    params.a = a.data();
    params.a_row = a_transposed ? 1 : s.depth + s.gap;
    params.a_depth = a_transposed ? s.rows + s.gap : 1;
    params.b = b.data();
    params.b_depth = b_transposed ? 1 : s.columns + s.gap;
    params.b_column = b_transposed ? s.depth + s.gap : 1;
    params.c = c.data();
    params.c_row = s.columns + s.gap;
  }

  void run(Parallel& parallel) {
    // NaN: what is read before it is written shows.
    std::vector<float> workspace(static_cast<size_t>(product_workspace(params)),
                                 std::numeric_limits<float>::quiet_NaN());
    product(params, parallel, workspace.data());
  }

  double wanted(int64_t row, int64_t column) const {
    double sum = 0;
    for (int64_t k = 0; k < size.depth; ++k)
      sum += static_cast<double>(params.a[row * params.a_row + k * params.a_depth]) *
             static_cast<double>(params.b[k * params.b_depth + column * params.b_column]);
    return sum;
  }

  static constexpr float kUntouched = 12345.0F;
  Size size;
  std::vector<float> a, b, c;
  ProductParams params;
};

void expect_product(const Operands& p) {
  const double tolerance = 1e-6 * (10 + static_cast<double>(p.size.depth));
  for (int64_t row = 0; row < p.size.rows; ++row) {
    const float* c = p.c.data() + row * p.params.c_row;
    for (int64_t column = 0; column < p.size.columns; ++column)
      ASSERT_NEAR(static_cast<double>(c[column]), p.wanted(row, column), tolerance)
          << p.size << " at " << row << ", " << column;
    for (int64_t column = p.size.columns; column < p.params.c_row; ++column)
      ASSERT_EQ(c[column], Operands::kUntouched) << p.size << " wrote between rows";
  }
}

TEST(Product, EqualsSums) {
  const Size sizes[] = {{1, 1, 1},         {6, 64, 16},  {7, 65, 17, 3}, {97, 15, 40},
                        {13, 130, 33, 5},  {200, 48, 9}, {3, 70, 1030},  {5, 33, 2051, 1},
                        {11, 1100, 20, 2}, {4, 5, 0, 1}};
  Serial serial;
  for (const Size& size : sizes)
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        Operands operands(size, a_transposed, b_transposed);
        operands.run(serial);
        expect_product(operands);
      }
}

TEST(Product, AddsWhereAsked) {
  Serial serial;
  Operands once({20, 70, 1100}, false, true), twice({20, 70, 1100}, false, true);
  once.run(serial);
  twice.run(serial);
  twice.params.add = true;
  twice.run(serial);
  for (size_t i = 0; i < once.c.size(); ++i) EXPECT_NEAR(twice.c[i], 2 * once.c[i], 1e-3F);
}

TEST(Product, NothingIsNothing) {
  Serial serial;
  for (const Size& size : {Size{0, 3, 4}, Size{3, 0, 4}}) {
    Operands operands(size, false, true);
    operands.run(serial);
  }
}

TEST(Product, WorkersChangeNoBit) {
  const auto pool = make_thread_pool(3);
  Serial serial;
  Operands alone({211, 1111, 1500, 1}, false, true), together({211, 1111, 1500, 1}, false, true);
  alone.run(serial);
  together.run(*pool);
  EXPECT_EQ(std::memcmp(alone.c.data(), together.c.data(), alone.c.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace tempera::kernels
