#include "tempera/bench/timing.h"

#include <gtest/gtest.h>

#include <string>

#include "tempera/base/error.h"

namespace tempera::bench {
namespace {

TEST(Spread, IsOfTheSortedSamples) {
  const Spread spread = spread_of({5, 1, 4, 2, 3});
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.lower, 2);
  EXPECT_EQ(spread.upper, 4);
  EXPECT_EQ(spread.runs, 5);
  EXPECT_EQ(spread_of({4, 1}).median, 2.5);
  EXPECT_EQ(spread_of({7}).upper, 7);
  EXPECT_THROW(spread_of({}), Error);
}

TEST(TimeInTurn, AlternatesAndKeepsTheLeastNumber) {
  std::string order;
  const std::vector<std::function<void()>> contenders = {[&] { order += 'a'; },
                                                         [&] { order += 'b'; }};
  const auto spreads = time_in_turn(contenders, /*seconds=*/0, /*least=*/3);
  EXPECT_EQ(order, "ababab");
  ASSERT_EQ(spreads.size(), 2U);
  EXPECT_EQ(spreads[1].runs, 3);
}

TEST(TimeInTurn, GoesOnForTheGivenTime) {
  const std::vector<std::function<void()>> contenders = {[] {}};
  EXPECT_GT(time_in_turn(contenders, /*seconds=*/1e-3, /*least=*/1)[0].runs, 1);
}

}  // namespace
}  // namespace tempera::bench
