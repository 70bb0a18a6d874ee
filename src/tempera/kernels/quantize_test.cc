// Rows of whole numbers against the rows that they were made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tempera/kernels/fused.h"
#include "tempera/kernels/reference/agreement.h"

namespace tempera::kernels {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kRows = 37;

// Rows of different magnitudes; the first of each head is 0.
template <class T>
Tensor<T> rows_of(int64_t size, LayoutCase layout) {
  Tensor<T> x({kBatch, kHeads, kRows, size}, layout, /*offset=*/1);
  for (int64_t i = 0; i < x.extent().count(); ++i) {
    const auto row = static_cast<double>(i / size % kRows);
    x.at(i) = from_double<T>(row * row * row * std::sin(static_cast<double>(i)));
  }
  return x;
}

template <class T>
struct Quantized {
  Quantized(Tensor<T>& x, LayoutCase layout, Parallel& parallel)
      : y(x.extent(), layout, /*offset=*/3), factor(row_extent(x.extent()), layout, 0) {
    const Extent& e = x.extent();
    quantize(QuantizeParams<T>{.batch = e.batch,
                               .heads = e.heads,
                               .rows = e.rows,
                               .size = e.size,
                               .x = x.input(),
                               .y = y.rows(),
                               .factor = factor.rows()},
             parallel);
  }
  static Extent row_extent(Extent extent) {
    extent.size = 1;
    return extent;
  }
  Tensor<int8_t> y;
  Tensor<float> factor;
};

template <class T>
class Quantize : public testing::Test {};
using Types = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Quantize, Types, TypeNames);

TYPED_TEST(Quantize, EveryNumberIsWithinHalfAStep) {
  using T = TypeParam;
  const auto two = make_thread_pool(2);
  for (const LayoutCase layout :
       {LayoutCase::kHeadsFirst, LayoutCase::kRowsFirst, LayoutCase::kPadded})
    for (const int64_t size : {1, 7, 16, 40, 64, 100, 256}) {
      Tensor<T> x = rows_of<T>(size, layout);
      Quantized<T> got(x, layout, *two);
      EXPECT_TRUE(got.y.guards_intact() && got.factor.guards_intact()) << size;
      for (int64_t row = 0; row < kBatch * kHeads * kRows; ++row) {
        double most = 0;
        int largest = 0;
        for (int64_t i = row * size; i < (row + 1) * size; ++i) {
          most = std::max(most, std::abs(to_double(x.at(i))));
          largest = std::max(largest, std::abs(static_cast<int>(got.y.at(i))));
        }
        const double factor = to_double(got.factor.at(row));
        ASSERT_NEAR(factor, most / 127, 1e-6 * most) << size << ", row " << row;
        ASSERT_EQ(largest, most > 0 ? 127 : 0) << size << ", row " << row;
        for (int64_t i = row * size; i < (row + 1) * size; ++i)
          ASSERT_NEAR(factor * got.y.at(i), to_double(x.at(i)), 0.50001 * factor)
              << size << ", row " << row;
      }
    }
}

TYPED_TEST(Quantize, ARowThatIsNotFiniteShowsIt) {
  using T = TypeParam;
  Serial serial;
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()})
    for (const int64_t column : {0, 5, 39}) {
      Tensor<T> x = rows_of<T>(40, LayoutCase::kHeadsFirst);
      x.at(40 * 9 + column) = from_double<T>(bad);
      Quantized<T> got(x, LayoutCase::kHeadsFirst, serial);
      for (int64_t row = 0; row < kBatch * kHeads * kRows; ++row)
        ASSERT_EQ(std::isfinite(to_double(got.factor.at(row))), row != 9)
            << bad << " at " << column;
    }
}

}  // namespace
}  // namespace tempera::kernels
