#include "tempera/serve/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace tempera::serve {
namespace {

TEST(Turns, WhoTakesItAgainAtOnceWaitsForTheOthers) {
  Turns turns;
  std::atomic<bool> stop = false;
  std::atomic<int> taken = 0;
  std::jthread greedy([&] {
    while (!stop) {
      const std::lock_guard lock(turns);
      ++taken;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  while (taken == 0) std::this_thread::yield();
  // The machine may stop this thread before it stands in line: not in most of the rounds.
  int soon = 0;
  for (int i = 0; i < 10; ++i) {
    const int before = taken;
    const std::lock_guard lock(turns);
    soon += taken - before <= 2 ? 1 : 0;
  }
  stop = true;
  EXPECT_GE(soon, 5);
}

TEST(Turns, OneAtATime) {
  Turns turns;
  int count = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        for (int j = 0; j < 200; ++j) {
          const std::lock_guard lock(turns);
          ++count;
        }
      });
  }
  EXPECT_EQ(count, 8 * 200);
}

}  // namespace
}  // namespace tempera::serve
