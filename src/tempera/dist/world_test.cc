#include "tempera/dist/world.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tempera/base/error.h"
#include "tempera/dist/testing.h"
#include "tempera/ops/torch.h"

namespace tempera::dist {
namespace {

const std::vector<std::string> kNoErrors(4);

TEST(World, AloneNothingHappens) {
  World world;
  const auto tensor = torch::arange(4.0);
  world.sum(tensor);
  world.start_sum_parts(tensor).wait();
  world.start_gather_parts(tensor).wait();
  EXPECT_TRUE(torch::equal(tensor, torch::arange(4.0)));
  EXPECT_TRUE(world.part(tensor).is_same(tensor) || torch::equal(world.part(tensor), tensor));
  EXPECT_EQ(world.sums({3, 4}), (std::vector<double>{3, 4}));
  EXPECT_EQ(world.exchange("a"), std::vector<std::string>{"a"});
  bool worked = false;
  world.first([&] { worked = true; });
  EXPECT_TRUE(worked);
}

TEST(World, TensorsAreExchanged) {
  const auto errors = run_in_threads(4, {.timeout = 20}, [](World& world) {
    const auto rank = static_cast<double>(world.rank());
    auto tensor = torch::full({8}, rank + 1);
    world.sum(tensor);
    EXPECT_TRUE(torch::equal(tensor, torch::full({8}, 10.0)));
    tensor = torch::arange(8.0) + rank;
    world.start_sum_parts(tensor).wait();
    EXPECT_TRUE(torch::equal(world.part(tensor),
                             4 * torch::arange(8.0).narrow(0, 2 * world.rank(), 2) + 6));
    tensor = torch::full({8}, -1.0);
    world.part(tensor).fill_(rank);
    world.start_gather_parts(tensor).wait();
    EXPECT_TRUE(torch::equal(tensor, torch::arange(4.0).repeat_interleave(2)));
    tensor = torch::full({3}, rank);
    world.broadcast(tensor, 2);
    EXPECT_TRUE(torch::equal(tensor, torch::full({3}, 2.0)));
    EXPECT_EQ(world.sums({1, rank}), (std::vector<double>{4, 6}));
    EXPECT_EQ(world.exchange(std::string(static_cast<size_t>(world.rank()), 'x')),
              (std::vector<std::string>{"", "x", "xx", "xxx"}));
    EXPECT_EQ(world.from_first(world.is_first() ? "first" : "not"), "first");
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(World, TheOthersWaitForTheFirst) {
  std::atomic<bool> done{false};
  const auto errors = run_in_threads(4, {.timeout = 20}, [&](World& world) {
    world.first([&] {
      std::this_thread::sleep_for(Seconds(0.2));
      done = true;
    });
    EXPECT_TRUE(done);
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(World, AFailureStopsAllAndIsNamed) {
  const auto errors = run_in_threads(3, {.timeout = 20}, [](World& world) {
    world.barrier();
    TEMPERA_CHECK(world.rank() != 1, "the disk is full");
    world.barrier();
  });
  EXPECT_EQ(errors[1], "the disk is full");
  for (const size_t rank : {0U, 2U}) {
    EXPECT_NE(errors[rank].find("rank 1 (machine "), std::string::npos) << errors[rank];
    EXPECT_NE(errors[rank].find("failed: the disk is full"), std::string::npos) << errors[rank];
  }
}

TEST(World, ARankThatHangsIsNamed) {
  const auto errors = run_in_threads(3, {.timeout = 1}, [](World& world) {
    world.barrier();
    if (world.rank() == 2) std::this_thread::sleep_for(Seconds(4));
    world.barrier();
  });
  for (const size_t rank : {0U, 1U})
    EXPECT_NE(errors[rank].find("rank 2 (machine "), std::string::npos) << errors[rank];
  EXPECT_NE(errors[0].find("hangs: for 1 s"), std::string::npos) << errors[0];
}

TEST(World, AMissingRankAndAMissingMeetingPointAreNamed) {
  Store host({.address = "127.0.0.1", .port = 0, .host = true, .prefix = "host"}, Seconds(10));
  Place place{
      .size = 3, .local_size = 3, .address = "127.0.0.1", .port = host.port(), .hosted = true};
  const auto error_of = [&] {
    try {
      World(place, {.timeout = 1}, c10::kCPU);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of().find("ranks 1 and 2 of 3 did not come within 1 s"), std::string::npos)
      << error_of();
  place.port = 1;
  EXPECT_NE(error_of().find("127.0.0.1:1 did not answer within 1 s"), std::string::npos);
}

TEST(World, RanksThatDoOtherThingsAreNamed) {
  const auto errors = run_in_threads(3, {.timeout = 20}, [](World& world) {
    check_agreement(world, {{"version", "1"}, {"data", world.rank() == 2 ? "b" : "a"}});
  });
  EXPECT_NE(errors[0].find("rank 0 has data a, and rank 2 has data b"), std::string::npos)
      << errors[0];
}

}  // namespace
}  // namespace tempera::dist
