#include "tempera/data/permutation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::data {
namespace {

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t n = 1; n <= 300; ++n) {
    const Permutation order(n, n * 17);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t place = order(i);
      ASSERT_LT(place, n);
      ASSERT_FALSE(seen[place]) << n;
      seen[place] = true;
    }
  }
}

TEST(Permutation, DependsOnTheKey) {
  const Permutation one(1000, 1);
  const Permutation two(1000, 2);
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) same += one(i) == two(i) ? 1 : 0;
  EXPECT_LT(same, 10);
}

TEST(Permutation, NeighboursAreSpread) {
  constexpr uint64_t kSize = 10007;
  const Permutation order(kSize, 5);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i)
    distance += std::abs(static_cast<double>(order(i + 1)) - static_cast<double>(order(i)));
  // Two independent places are n / 3 apart on average.
  EXPECT_NEAR(distance / (kSize - 1) / kSize, 1.0 / 3, 0.02);
}

TEST(Permutation, EveryOrderOfAFewPlacesIsEquallyLikely) {
  std::vector<int> counts(6);
  for (uint64_t key = 0; key < 6000; ++key) {
    const Permutation order(3, key);
    ++counts[order(0) * 2 + (order(1) > order(2) ? 1 : 0)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 5 * 29);
}

TEST(Permutation, LargeSizesAndBadArguments) {
  const uint64_t large = (uint64_t{1} << 62) - 1;
  EXPECT_LT(Permutation(large, 3)(large - 1), large);
  EXPECT_THROW(Permutation(0, 1), Error);
  EXPECT_THROW(Permutation(5, 1)(5), Error);
}

TEST(Permutation, GoldenValues) {
  const Permutation order(1000, 42);
  EXPECT_EQ((std::vector<uint64_t>{order(0), order(1), order(2), order(999)}),
            (std::vector<uint64_t>{899, 754, 631, 301}));
}

}  // namespace
}  // namespace tempera::data
