#include "tempera/dist/world.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/dist/testing.h"
#include "tempera/ops/torch.h"

namespace tempera::dist {
namespace {

const std::vector<std::string> kNoErrors(4);

// Of an exchange, where a test waits for its end: a busy machine keeps ranks apart for more than a
// second.
constexpr double kTimeout = 5;

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
  const auto errors = run_in_threads(4, {.timeout = 60}, [](World& world) {
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

TEST(World, TeamsExchangeAmongThemselves) {
  const auto errors = run_in_threads(4, {.timeout = 60}, [](World& world) {
    const Team team(world, 2);
    EXPECT_EQ(team.number(), world.rank() / 2);
    EXPECT_EQ(team.rank(), world.rank() % 2);
    auto tensor = torch::full({4}, -1.0);
    tensor.narrow(0, 2 * team.rank(), 2).fill_(static_cast<double>(world.rank()));
    team.gather_parts(tensor);
    const auto first = static_cast<double>(2 * team.number());
    EXPECT_TRUE(torch::equal(tensor, torch::tensor({0.0, 0.0, 1.0, 1.0}) + first));
    tensor = torch::arange(4.0) + static_cast<double>(world.rank());
    team.sum_parts(tensor);
    EXPECT_TRUE(torch::equal(tensor.narrow(0, 2 * team.rank(), 2),
                             2 * torch::arange(4.0).narrow(0, 2 * team.rank(), 2) + 2 * first + 1));
    EXPECT_EQ(world.sums({1}), std::vector<double>{4});
    EXPECT_THROW(Team(world, 3), Error);
    for (int i = 0; i < 4; ++i) {  // one after the other
      if (i == world.rank()) std::this_thread::sleep_for(Seconds(0.05));
      const Team again(world, 2);
      tensor = torch::ones({2});
      again.sum_parts(tensor);
      EXPECT_EQ(tensor[again.rank()].item<double>(), 2);
    }
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(SharedJobs, EveryJobIsTakenOnce) {
  constexpr int64_t kJobs = 40;
  std::array<std::atomic<int>, kJobs> times{};
  const auto work = [&](World& world) {
    SharedJobs jobs(world);
    jobs.say(concat("rank ", world.rank()));
    for (size_t job = 0; job < times.size(); ++job) {
      if (!jobs.claim(std::to_string(job))) continue;
      EXPECT_GT(jobs.under_way(), 0);
      ++times[job];
      jobs.finish();
    }
    EXPECT_FALSE(jobs.all_ended());
    jobs.end();
    while (!jobs.all_ended()) std::this_thread::sleep_for(Seconds(0.01));
    EXPECT_EQ(jobs.under_way(), 0);
    EXPECT_EQ(jobs.stop(0), 0);
    for (int64_t rank = 0; rank < world.size(); ++rank)
      EXPECT_EQ(jobs.said()[static_cast<size_t>(rank)], concat("rank ", rank));
  };
  // One work after the other begins anew.
  const auto twice = [&](World& world) {
    work(world);
    work(world);
  };
  World alone;
  twice(alone);
  EXPECT_EQ(run_in_threads(3, {.timeout = 60}, twice), std::vector<std::string>(3));
  for (const auto& count : times) EXPECT_EQ(count, 4);
}

TEST(SharedJobs, ASignalToOneStopsAll) {
  const auto errors = run_in_threads(3, {.timeout = 60}, [](World& world) {
    SharedJobs jobs(world);
    // One that has nothing left to do, too.
    if (world.rank() != 0) jobs.end();
    while (jobs.stop(world.rank() == 1 ? SIGINT : 0) == 0) {
    }
    if (world.rank() == 0) jobs.end();
    while (!jobs.all_ended()) std::this_thread::sleep_for(Seconds(0.01));
    EXPECT_EQ(jobs.stop(SIGTERM), SIGINT);  // the first
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(SharedJobs, ASignalAfterTheEndStopsNobody) {
  const auto work = [](World& world) {
    SharedJobs jobs(world);
    jobs.end();
    while (!jobs.all_ended()) std::this_thread::sleep_for(Seconds(0.01));
    EXPECT_EQ(jobs.stop(SIGINT), 0);
  };
  World alone;
  work(alone);
  EXPECT_EQ(run_in_threads(2, {.timeout = 60}, work), std::vector<std::string>(2));
}

TEST(SharedJobs, AFailureOfOneEndsAll) {
  const auto errors = run_in_threads(2, {.timeout = 60}, [](World& world) {
    SharedJobs jobs(world);
    TEMPERA_CHECK(world.rank() != 1, "the disk is full");
    jobs.end();
    while (!jobs.all_ended()) std::this_thread::sleep_for(Seconds(0.01));
  });
  EXPECT_NE(errors[0].find("failed: the disk is full"), std::string::npos) << errors[0];
}

TEST(World, TheOthersWaitForTheFirst) {
  std::atomic<bool> done{false};
  const auto errors = run_in_threads(4, {.timeout = 60}, [&](World& world) {
    world.first([&] {
      std::this_thread::sleep_for(Seconds(0.2));
      done = true;
    });
    EXPECT_TRUE(done);
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST(World, RanksThatReadAndWriteAreAwaitedForLongerThanAnExchange) {
  const auto errors = run_in_threads(3, {.timeout = kTimeout}, [](World& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(Seconds(kTimeout + 2));
    world.await_all();
    world.barrier();
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(World, AFailureOfAnAwaitedRankIsNamed) {
  const auto errors = run_in_threads(2, {.timeout = 60}, [](World& world) {
    TEMPERA_CHECK(world.rank() != 1, "the disk is full");
    world.await_all();
  });
  EXPECT_NE(errors[0].find("failed: the disk is full"), std::string::npos) << errors[0];
}

TEST(World, AnInterruptedFirstRankInterruptsAll) {
  const auto errors = run_in_threads(2, {.timeout = 60}, [](World& world) {
    try {
      world.first([] { throw Interrupted(SIGINT, "at once"); });
    } catch (const Interrupted& error) {
      EXPECT_EQ(error.signal(), SIGINT);
      throw;
    }
    ADD_FAILURE() << "not interrupted";
  });
  EXPECT_EQ(errors[0], "at once");
}

TEST(World, ASignalToOneThatWaitsInterruptsTheFirst) {
  std::optional<InterruptGuard> guard(std::in_place);
  std::array<std::atomic<int>, 2> ended{};
  run_in_threads(2, {.timeout = 60}, [&](World& world) {
    try {
      world.first([&] {
        std::raise(SIGTERM);
        for (double slept = 0; ended[1] == 0 && slept < 60; slept += 0.01)
          std::this_thread::sleep_for(Seconds(0.01));
      });
    } catch (const Interrupted& error) {
      ended[static_cast<size_t>(world.rank())] = error.signal();
    }
  });
  EXPECT_EQ(ended[0], SIGTERM);
  EXPECT_EQ(ended[1], SIGTERM);
  guard.reset();
  guard.emplace();  // which forgets the signal
}

TEST(World, EveryAttemptBeginsAnewInOneStore) {
  Store host({.address = "127.0.0.1", .port = 0, .host = true, .prefix = kMeetingPrefix},
             Seconds(60));
  const auto place = [&](int64_t rank) {
    return Place{.rank = rank,
                 .size = 2,
                 .local_rank = rank,
                 .local_size = 2,
                 .address = "127.0.0.1",
                 .port = host.port(),
                 .hosted = true,
                 .elastic = true};
  };
  for (const bool fails : {true, false, true, false}) {
    std::vector<std::string> errors(2);
    std::vector<std::thread> threads;
    for (const int64_t rank : {0, 1})
      threads.emplace_back([&, rank] {
        try {
          // The other machine may be first, and finds what the attempt before has left.
          if (rank == 0) std::this_thread::sleep_for(Seconds(0.5));
          World world(place(rank), {.timeout = 20}, c10::kCPU);
          world.run([&] {
            world.first([] {});
            TEMPERA_CHECK(!fails || rank == 0, "the disk is full");
            world.barrier();
          });
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    if (fails)
      EXPECT_EQ(errors[1], "the disk is full");
    else
      EXPECT_EQ(errors, std::vector<std::string>(2));
  }
  EXPECT_EQ(host.add("attempts", 0), 4);
}

TEST(World, AnAttemptWithoutItsFirstRankIsNamed) {
  Store host({.address = "127.0.0.1", .port = 0, .host = true, .prefix = kMeetingPrefix},
             Seconds(60));
  host.add("attempts", 1);
  host.set("attempt_1/sign/0", "7 7");
  try {
    World({.rank = 1,
           .size = 2,
           .local_size = 2,
           .address = "127.0.0.1",
           .port = host.port(),
           .hosted = true,
           .elastic = true},
          {.timeout = kTimeout}, c10::kCPU);
    ADD_FAILURE() << "met nobody";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 did not come within 5 s"), std::string::npos)
        << error.what();
  }
}

TEST(World, AFailureStopsAllAndIsNamed) {
  const auto errors = run_in_threads(3, {.timeout = 60}, [](World& world) {
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
  std::atomic<int> ended{0};
  const auto errors = run_in_threads(3, {.timeout = kTimeout}, [&](World& world) {
    world.barrier();
    for (double slept = 0; world.rank() == 2 && ended < 2 && slept < 60; slept += 0.1)
      std::this_thread::sleep_for(Seconds(0.1));
    try {
      world.barrier();
    } catch (const RankFailure&) {
      ++ended;
      throw;
    }
  });
  for (const size_t rank : {0U, 1U})
    EXPECT_NE(errors[rank].find("rank 2 (machine "), std::string::npos) << errors[rank];
  EXPECT_NE(errors[0].find("hangs: for 5 s"), std::string::npos) << errors[0];
}

TEST(World, AMissingRankAndAMissingMeetingPointAreNamed) {
  Store host({.address = "127.0.0.1", .port = 0, .host = true, .prefix = "host"}, Seconds(10));
  Place place{
      .size = 3, .local_size = 3, .address = "127.0.0.1", .port = host.port(), .hosted = true};
  const auto error_of = [&](double timeout) {
    try {
      World(place, {.timeout = timeout}, c10::kCPU);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string missing = error_of(kTimeout);
  EXPECT_NE(missing.find("ranks 1 and 2 of 3 did not come within 5 s"), std::string::npos)
      << missing;
  place.port = 1;
  EXPECT_NE(error_of(1).find("127.0.0.1:1 did not answer within 1 s"), std::string::npos);
}

TEST(World, RanksThatDoOtherThingsAreNamed) {
  const auto errors = run_in_threads(3, {.timeout = 60}, [](World& world) {
    check_agreement(world, {{"version", "1"}, {"data", world.rank() == 2 ? "b" : "a"}});
  });
  EXPECT_NE(errors[0].find("rank 0 has data a, and rank 2 has data b"), std::string::npos)
      << errors[0];
}

}  // namespace
}  // namespace tempera::dist
