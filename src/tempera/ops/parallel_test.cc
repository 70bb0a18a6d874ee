#include "tempera/ops/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tempera::ops {
namespace {

TEST(AtenParallel, RunsEveryTaskOnceAndNoWorkerTwiceAtATime) {
  AtenParallel parallel;
  std::vector<std::atomic<int>> runs(1000);
  std::vector<std::atomic<int>> busy(static_cast<size_t>(parallel.workers()));
  parallel.run(1000, [&](int64_t task, int worker) {
    EXPECT_EQ(busy.at(static_cast<size_t>(worker))++, 0);
    ++runs[static_cast<size_t>(task)];
    --busy[static_cast<size_t>(worker)];
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(AtenParallel, UsesAtensThreads) {
  AtenParallel parallel;
  EXPECT_EQ(parallel.workers(), at::get_num_threads());
  if (parallel.workers() < 2) GTEST_SKIP() << "one thread";
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel.run(64, [&](int64_t, int) {
    EXPECT_TRUE(at::in_parallel_region());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_GE(threads.size(), 2U);
}

TEST(AtenParallel, IsSerialInsideAParallelRegion) {
  AtenParallel outer;
  if (outer.workers() < 2) GTEST_SKIP() << "one thread";
  std::atomic<int> inner_runs = 0;
  outer.run(4, [&](int64_t, int) {
    AtenParallel inner;
    EXPECT_EQ(inner.workers(), 1);
    inner.run(3, [&](int64_t, int worker) {
      EXPECT_EQ(worker, 0);
      ++inner_runs;
    });
  });
  EXPECT_EQ(inner_runs, 12);
}

TEST(AtenParallel, PassesExceptionsOn) {
  AtenParallel parallel;
  EXPECT_THROW(parallel.run(8, [](int64_t, int) { throw std::runtime_error("task"); }),
               std::runtime_error);
  int runs = 0;
  parallel.run(1, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace tempera::ops
