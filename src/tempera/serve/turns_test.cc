#include "tempera/serve/turns.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tempera::serve {
namespace {

bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.find(") S ") != std::string::npos;
}

TEST(Turns, WhoTakesItAgainAtOnceWaitsForTheOthers) {
  Turns turns;
  for (int i = 0; i < 10; ++i) {
    std::atomic<pid_t> other = 0;
    std::atomic<bool> served = false;
    turns.lock();
    const std::jthread thread([&] {
      other = ::gettid();
      const std::lock_guard lock(turns);
      served = true;
    });
    // It stands in line once it sleeps: nothing else keeps it.
    while (other == 0 || !is_asleep(other)) std::this_thread::yield();
    turns.unlock();
    turns.lock();
    EXPECT_TRUE(served);
    turns.unlock();
  }
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
