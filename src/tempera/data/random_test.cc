#include "tempera/data/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace tempera::data {
namespace {

// The published known answers of the generator.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ULL),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DependsOnSeedStepAndLane) {
  const auto first = [](uint64_t seed, uint64_t step, uint32_t lane) {
    return RandomStream(seed, step, lane).next64();
  };
  EXPECT_EQ(first(1, 2, 3), first(1, 2, 3));
  std::set<uint64_t> seen;
  for (uint64_t seed : {0ULL, 1ULL, 1ULL << 40})
    for (uint64_t step : {0ULL, 1ULL, 1ULL << 40})
      for (uint32_t lane : {0U, 1U, ~0U}) seen.insert(first(seed, step, lane));
  EXPECT_EQ(seen.size(), 27U);
}

TEST(RandomStream, GoldenValues) {
  RandomStream random(42, 7, 3);
  std::vector<uint32_t> draws;
  for (int i = 0; i < 6; ++i) draws.push_back(random.below(1000));
  EXPECT_EQ(draws, (std::vector<uint32_t>{169, 599, 678, 939, 724, 388}));
  EXPECT_EQ(derive_seed(42, "phonebook/train"), 16610862092470134614U);
}

TEST(RandomStream, BelowIsUniform) {
  // 3 * 2^30 has the worst bias under a modulo: a third of the range would be twice as likely.
  RandomStream random(1, 0);
  constexpr uint32_t kRange = 3U << 30;
  constexpr int kDraws = 30000;
  std::array<int, 3> thirds{};
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t draw = random.below(kRange);
    ASSERT_LT(draw, kRange);
    ++thirds[draw >> 30];
  }
  for (const int count : thirds)
    EXPECT_NEAR(count, kDraws / 3, 5 * 82);  // five standard deviations
}

TEST(RandomStream, FloatsLieInTheUnitInterval) {
  RandomStream random(5, 0);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = random.uniform();
    ASSERT_TRUE(x >= 0 && x < 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 5 * 0.289 / 100);
}

TEST(RandomStream, ShuffleIsAUniformPermutation) {
  std::array<int, 6> counts{};
  for (uint64_t step = 0; step < 6000; ++step) {
    std::vector<int> items{0, 1, 2};
    RandomStream(3, step).shuffle(std::span(items));
    ++counts[static_cast<size_t>(items[0] * 2 + (items[1] > items[2] ? 1 : 0))];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 5 * 29);
}

TEST(DistinctSampler, DrawsDistinctAndRestoresItself) {
  DistinctSampler sampler(50);
  std::vector<uint32_t> first(20);
  RandomStream one(9, 1);
  sampler.sample(one, first);
  EXPECT_EQ(std::set<uint32_t>(first.begin(), first.end()).size(), 20U);
  EXPECT_LT(*std::max_element(first.begin(), first.end()), 50U);

  std::vector<uint32_t> other(50);
  RandomStream two(9, 2);
  sampler.sample(two, other);
  EXPECT_EQ(std::set<uint32_t>(other.begin(), other.end()).size(), 50U);

  // What was drawn between does not matter.
  std::vector<uint32_t> again(20);
  RandomStream same(9, 1);
  sampler.sample(same, again);
  EXPECT_EQ(again, first);
  std::vector<uint32_t> many(51);
  EXPECT_THROW(sampler.sample(same, many), Error);
}

TEST(DistinctSampler, EveryNumberIsEquallyLikely) {
  DistinctSampler sampler(10);
  std::array<int, 10> counts{};
  std::vector<uint32_t> out(3);
  for (uint64_t step = 0; step < 10000; ++step) {
    RandomStream random(11, step);
    sampler.sample(random, out);
    for (const uint32_t draw : out) ++counts[draw];
  }
  for (const int count : counts) EXPECT_NEAR(count, 3000, 5 * 46);
}

}  // namespace
}  // namespace tempera::data
