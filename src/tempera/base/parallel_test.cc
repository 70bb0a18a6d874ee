#include "tempera/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/error.h"

namespace tempera {
namespace {

// Counts of tasks and workers; the latter need no atomics exactly if a worker runs one task at a
// time.
struct Tally {
  explicit Tally(int64_t tasks, int workers)
      : of_task(static_cast<size_t>(tasks)), of_worker(static_cast<size_t>(workers)) {}

  void operator()(int64_t task, int worker) {
    ++of_task.at(static_cast<size_t>(task));
    ++of_worker.at(static_cast<size_t>(worker));
  }

  std::vector<int> of_task;
  std::vector<int64_t> of_worker;
};

class EveryParallel : public testing::TestWithParam<int> {
 protected:
  // 0 stands for Serial.
  static std::unique_ptr<Parallel> make() {
    if (GetParam() == 0) return std::make_unique<Serial>();
    return make_thread_pool(GetParam());
  }
};

TEST_P(EveryParallel, RunsEveryTaskOnceWithAWorkerBelowTheBound) {
  const auto parallel = make();
  for (const int64_t tasks : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}}) {
    Tally tally(tasks, parallel->workers());
    parallel->run(tasks, tally);
    int64_t sum = 0;
    for (const int count : tally.of_task) EXPECT_EQ(count, 1);
    for (const int64_t count : tally.of_worker) sum += count;
    EXPECT_EQ(sum, tasks);
  }
}

TEST_P(EveryParallel, ManyShortRunsInARowMixNoTasks) {
  const auto parallel = make();
  for (int64_t round = 0; round < 2000; ++round) {
    const int64_t tasks = round % 5;
    std::atomic<int64_t> sum = 0;
    parallel->run(tasks, [&, round](int64_t task, int) { sum += round * 10 + task; });
    ASSERT_EQ(sum, tasks * round * 10 + tasks * (tasks - 1) / 2) << "round " << round;
  }
}

TEST_P(EveryParallel, WritesOfTasksAreSeenByTheCaller) {
  const auto parallel = make();
  std::vector<int64_t> written(512);
  parallel->run(512, [&](int64_t task, int) { written[static_cast<size_t>(task)] = task * task; });
  for (int64_t i = 0; i < 512; ++i) EXPECT_EQ(written[static_cast<size_t>(i)], i * i);
}

TEST_P(EveryParallel, AnExceptionComesOutAndTheNextRunIsWhole) {
  const auto parallel = make();
  for (const int64_t bad : {int64_t{0}, int64_t{13}, int64_t{63}}) {
    std::string message;
    try {
      parallel->run(64, [&](int64_t task, int) {
        if (task == bad) throw std::runtime_error("task " + std::to_string(task));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "task " + std::to_string(bad));

    Tally tally(64, parallel->workers());
    parallel->run(64, tally);
    for (const int count : tally.of_task) EXPECT_EQ(count, 1);
  }
}

TEST_P(EveryParallel, WhenAllTasksThrowOneExceptionComesOut) {
  const auto parallel = make();
  EXPECT_THROW(parallel->run(64, [](int64_t, int) { throw Error("no"); }), Error);
}

INSTANTIATE_TEST_SUITE_P(Workers, EveryParallel, testing::Values(0, 1, 2, 3, 8));

TEST(ThreadPool, UsesItsThreads) {
  // Each task waits for the other: one thread alone would never end, so give up after a while.
  const auto pool = make_thread_pool(2);
  std::atomic<int> arrived = 0;
  std::atomic<bool> met = true;
  pool->run(2, [&](int64_t, int) {
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (arrived < 2) met = false;
  });
  EXPECT_TRUE(met);
}

TEST(ThreadPool, RefusesARunInsideATask) {
  for (const int workers : {1, 3}) {
    const auto pool = make_thread_pool(workers);
    EXPECT_THROW(pool->run(4, [&](int64_t, int) { pool->run(1, [](int64_t, int) {}); }), Error);
    Tally tally(4, workers);
    pool->run(4, tally);
    for (const int count : tally.of_task) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPool, RefusesANumberOfWorkersOutOfRange) {
  for (const int workers : {-1, 0, 4097}) EXPECT_THROW(make_thread_pool(workers), Error);
}

TEST(FunctionRef, CallsTheBorrowedObjectItself) {
  int calls = 0;
  const auto add = [&calls](int n) { return calls += n; };
  const FunctionRef<int(int)> ref = add;
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(copy(3), 5);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace tempera
