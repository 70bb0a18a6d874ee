#include "tempera/study/pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/testing.h"
#include "tempera/dist/testing.h"

namespace tempera::study {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieces = 12;

class PoolTest : public testing::Test {
 protected:
  using Make = std::function<void(int64_t index, const ReportStep& report)>;

  std::vector<Piece> pieces(const Make& make) const {
    std::vector<Piece> list;
    for (int64_t i = 0; i < kPieces; ++i)
      list.push_back({.label = concat("piece ", i),
                      .file = file(i),
                      .make = [make, i](const ReportStep& report) {
                        make(i, report);
                        return Json{{"index", i}};
                      }});
    return list;
  }

  fs::path file(int64_t index) const { return folder_.path() / concat(index, ".json"); }

  // One of each rank that fails, in its words.
  static std::vector<std::string> run(int64_t ranks, const std::function<void(dist::World&)>& job) {
    return dist::run_in_threads(ranks, {.timeout = 60}, job);
  }

  const TempFolder folder_;
};

TEST_F(PoolTest, EveryPieceIsMadeByOneRank) {
  std::vector<std::atomic<int>> made(kPieces);
  std::array<std::atomic<int>, 3> by_rank{};
  write_file(file(5), Json{{"build", "of another"}, {"index", 5}}.dump());
  const auto work = [&](dist::World& world) {
    run_pieces("test", pieces([&](int64_t index, const ReportStep& report) {
                 report(0.5, 1);
                 std::this_thread::sleep_for(dist::Seconds(0.02));
                 ++made[static_cast<size_t>(index)];
                 ++by_rank[static_cast<size_t>(world.rank())];
               }),
               /*threads=*/1, world);
    for (int64_t i = 0; i < kPieces; ++i) EXPECT_EQ(read_json(file(i)).at("index"), i);
  };
  for (const auto& error : run(3, work)) EXPECT_TRUE(says(error, "made by another build"));
  fs::remove(file(5));
  EXPECT_EQ(run(3, work), std::vector<std::string>(3));
  for (const auto& count : made) EXPECT_EQ(count, 1);
  for (const auto& count : by_rank) EXPECT_GT(count, 0);
  // What is there is not made again.
  fs::remove(file(7));
  EXPECT_EQ(run(2, work), std::vector<std::string>(2));
  for (int64_t i = 0; i < kPieces; ++i) EXPECT_EQ(made[static_cast<size_t>(i)], i == 7 ? 2 : 1);
}

TEST_F(PoolTest, AFailureStopsTheOthersAndKeepsWhatIsFinished) {
  const auto errors = run(2, [&](dist::World& world) {
    run_pieces("test", pieces([&](int64_t index, const ReportStep& report) {
                 if (world.rank() == 1 && index > 0) throw Error("the disk is full");
                 // One that would take for ever.
                 while (index > 2) report(0, 1);
               }),
               /*threads=*/1, world);
  });
  EXPECT_TRUE(says(errors[0], "rank 1"));
  EXPECT_TRUE(says(errors[0], "failed: the disk is full"));
  EXPECT_EQ(errors[1], "the disk is full");
  EXPECT_TRUE(fs::exists(file(0)));
  EXPECT_FALSE(fs::exists(file(kPieces - 1)));
}

TEST_F(PoolTest, ASignalEndsAllRanksAndTheSameCallGoesOn) {
  const InterruptGuard guard;
  std::atomic<int> finished{0};
  const auto errors = run(2, [&](dist::World& world) {
    run_pieces("test", pieces([&](int64_t index, const ReportStep& report) {
                 if (index == 3) std::raise(SIGINT);
                 while (index > 2) report(0, 1);
                 ++finished;
               }),
               /*threads=*/1, world);
  });
  EXPECT_EQ(errors[0], "interrupted; finished models are kept, the same command goes on");
  EXPECT_EQ(errors[1], "");  // one says it
  EXPECT_EQ(finished, 3);
  EXPECT_TRUE(fs::exists(file(2)));
}

}  // namespace
}  // namespace tempera::study
