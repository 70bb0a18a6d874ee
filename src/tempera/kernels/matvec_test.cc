// Few rows times a matrix against sums in double precision.
#include "tempera/kernels/matvec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace tempera::kernels {
namespace {

float value(float x) { return x; }
float value(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

void assign(float from, float& to) { to = from; }
// Cut, not rounded: inputs only have to be representable.
void assign(float from, BFloat16& to) {
  to.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(from) >> 16);
}

template <class T>
std::vector<T> random_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> numbers(static_cast<size_t>(count));
  for (T& number : numbers) assign(normal(random), number);
  return numbers;
}

struct Size {
  int64_t rows, inputs, outputs;
  int64_t gap = 0;  // columns between the end of a row and the next
};

// All operands of one product.
template <class X, class W>
struct Product {
  explicit Product(const Size& s)
      : size(s),
        x(random_numbers<X>(s.rows * (s.inputs + s.gap), 1)),
        weight(random_numbers<W>(s.outputs * (s.inputs + s.gap), 2)),
        bias(random_numbers<W>(s.outputs, 3)),
        y(random_numbers<X>(s.rows * (s.outputs + s.gap), 4)) {}

  MatvecParams<X, W> params(bool with_bias) {
    return {size.rows,
            size.inputs,
            size.outputs,
            x.data(),
            size.inputs + size.gap,
            weight.data(),
            size.inputs + size.gap,
            with_bias ? bias.data() : nullptr,
            y.data(),
            size.outputs + size.gap};
  }

  // The sum, and in `size_of_terms` the sum of the terms' absolute values.
  double exact(int64_t row, int64_t output, bool with_bias, double& size_of_terms) const {
    double sum = with_bias ? static_cast<double>(value(bias[static_cast<size_t>(output)])) : 0;
    size_of_terms = std::abs(sum);
    for (int64_t c = 0; c < size.inputs; ++c) {
      const double term =
          static_cast<double>(value(x[static_cast<size_t>(row * (size.inputs + size.gap) + c)])) *
          static_cast<double>(
              value(weight[static_cast<size_t>(output * (size.inputs + size.gap) + c)]));
      sum += term;
      size_of_terms += std::abs(term);
    }
    return sum;
  }

  Size size;
  std::vector<X> x;
  std::vector<W> weight, bias;
  std::vector<X> y;
};

template <class X, class W>
void expect_exact(const Size& size, bool with_bias) {
  SCOPED_TRACE(testing::Message() << size.rows << " x " << size.inputs << " -> " << size.outputs
                                  << ", gap " << size.gap);
  Product<X, W> product(size);
  const std::vector<X> before = product.y;
  Serial serial;
  matvec(product.params(with_bias), serial);
  const double rounding = std::is_same_v<X, float> ? 0 : 1.0 / 256;
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t o = 0; o < size.outputs + size.gap; ++o) {
      const auto at = static_cast<size_t>(r * (size.outputs + size.gap) + o);
      if (o >= size.outputs) {
        ASSERT_EQ(value(product.y[at]), value(before[at])) << "written behind a row";
        continue;
      }
      double terms = 0;
      const double wanted = product.exact(r, o, with_bias, terms);
      ASSERT_NEAR(static_cast<double>(value(product.y[at])), wanted,
                  1e-6 * terms + rounding * std::abs(wanted) + 1e-30)
          << "row " << r << ", output " << o;
    }
  }
}

template <class Types>
class Matvec : public testing::Test {};

template <class A, class B>
struct Pair {
  using X = A;
  using W = B;
};
using AllTypes = testing::Types<Pair<float, float>, Pair<float, BFloat16>, Pair<BFloat16, float>,
                                Pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(Matvec, AllTypes);

TYPED_TEST(Matvec, EqualsTheSumsInDoublePrecision) {
  for (int64_t rows = 1; rows <= 9; ++rows)
    for (const int64_t inputs : {1, 3, 16, 31, 64, 97})
      for (const int64_t outputs : {1, 2, 5, 13})
        expect_exact<typename TypeParam::X, typename TypeParam::W>({rows, inputs, outputs},
                                                                   inputs % 2 == 0);
}

TYPED_TEST(Matvec, RowsMayLieApart) {
  expect_exact<typename TypeParam::X, typename TypeParam::W>({3, 45, 7, 5}, true);
  expect_exact<typename TypeParam::X, typename TypeParam::W>({8, 32, 9, 3}, false);
}

TYPED_TEST(Matvec, ManyTasks) {
  expect_exact<typename TypeParam::X, typename TypeParam::W>({5, 1000, 301}, true);
  expect_exact<typename TypeParam::X, typename TypeParam::W>({20, 576, 130}, true);
}

TYPED_TEST(Matvec, NothingInGivesTheBias) {
  expect_exact<typename TypeParam::X, typename TypeParam::W>({2, 0, 3}, true);
  expect_exact<typename TypeParam::X, typename TypeParam::W>({0, 4, 3}, true);
  expect_exact<typename TypeParam::X, typename TypeParam::W>({2, 4, 0}, false);
}

// Neither the workers nor the rows beside it change a bit of a result.
TYPED_TEST(Matvec, TheSameBits) {
  using X = typename TypeParam::X;
  Product<X, typename TypeParam::W> product({8, 577, 301});
  Serial serial;
  matvec(product.params(true), serial);
  const std::vector<X> alone = product.y;
  const auto same = [&] {
    return std::memcmp(alone.data(), product.y.data(), alone.size() * sizeof(X)) == 0;
  };
  for (const int workers : {2, 3}) {
    const auto pool = make_thread_pool(workers);
    std::fill(product.y.begin(), product.y.end(), X{});
    matvec(product.params(true), *pool);
    EXPECT_TRUE(same()) << workers << " workers";
  }
  std::fill(product.y.begin(), product.y.end(), X{});
  int64_t row = 0;
  for (const int64_t count : {1, 4, 3}) {
    auto params = product.params(true);
    params.x += row * params.x_stride;
    params.y += row * params.y_stride;
    params.rows = count;
    matvec(params, serial);
    row += count;
  }
  EXPECT_TRUE(same()) << "rows by parts";
}

TYPED_TEST(Matvec, InfinitiesAndNansStayInTheirRow) {
  using X = typename TypeParam::X;
  Product<X, typename TypeParam::W> product({2, 33, 4});
  assign(std::numeric_limits<float>::infinity(), product.x[5]);
  Serial serial;
  matvec(product.params(false), serial);
  for (size_t o = 0; o < 4; ++o) {
    EXPECT_FALSE(std::isfinite(value(product.y[o])));
    EXPECT_TRUE(std::isfinite(value(product.y[4 + o])));
  }
}

}  // namespace
}  // namespace tempera::kernels
