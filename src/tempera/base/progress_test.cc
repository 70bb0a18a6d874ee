#include "tempera/base/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace tempera {
namespace {

class ProgressTest : public testing::Test {
 protected:
  ProgressOutput output(bool terminal) {
    return {&stream_, terminal, /*columns=*/80, [this] { return time_; }};
  }
  void wait(double seconds) {
    time_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  }

  std::ostringstream stream_;
  std::chrono::steady_clock::time_point time_;
};

TEST_F(ProgressTest, WritesALineEveryFewSeconds) {
  Progress progress("train", 100, "steps", output(/*terminal=*/false));
  for (int step = 1; step <= 60; ++step) {
    wait(0.1);
    progress.update(step, "loss 2.5");
  }
  EXPECT_EQ(stream_.str(), "train   50.0 %  50/100  10.0 steps/s  0:05 left  loss 2.5\n");
}

TEST_F(ProgressTest, RewritesOneLineOnATerminal) {
  {
    Progress progress("train", 10, "steps", output(/*terminal=*/true));
    wait(1);
    progress.update(5, "a long text");
    wait(0.01);
    progress.update(6, "too soon to show");
    wait(1);
    progress.update(10);
    progress.finish();
    progress.finish();
  }
  EXPECT_EQ(stream_.str(),
            "\rtrain   50.0 %  5/10  5.00 steps/s  0:01 left  a long text"
            "\rtrain  100.0 %  10/10  4.98 steps/s  0:02                 \n");
}

TEST_F(ProgressTest, CutsALineThatDoesNotFit) {
  {
    Progress progress("train", 10, "steps", output(/*terminal=*/true));
    wait(1);
    progress.update(5, std::string(200, 'x'));
  }
  const std::string text = stream_.str();
  EXPECT_EQ(text.size(), 1U + 79U + 1U);
  EXPECT_TRUE(text.ends_with("x\n"));
}

TEST_F(ProgressTest, ANoteStandsAboveTheLine) {
  Progress progress("train", 10, "steps", output(/*terminal=*/true));
  wait(1);
  progress.update(5);
  const size_t width = stream_.str().size() - 1;
  stream_.str("");
  progress.note("about 2 s");
  EXPECT_EQ(stream_.str(), "\r" + std::string(width, ' ') + "\rabout 2 s\n");
}

TEST(ProgressText, TimesThatAreNotKnownWell) {
  EXPECT_EQ(about_text(0.2), "about 1 s");
  EXPECT_EQ(about_text(45), "about 45 s");
  EXPECT_EQ(about_text(570), "about 10 min");
  EXPECT_EQ(about_text(14 * 3600), "about 14 h");
  EXPECT_EQ(about_text(9000), "about 2.5 h");
  EXPECT_EQ(about_text(3 * 86400), "about 3.0 days");
}

TEST(ProgressText, CountsAreGrouped) {
  EXPECT_EQ(count_text(7), "7");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(-123456), "-123,456");
  EXPECT_EQ(count_text(1234567), "1,234,567");
}

TEST_F(ProgressTest, TheLastStateIsShown) {
  Progress progress("train", 3, "steps", output(/*terminal=*/false));
  wait(1);
  progress.update(3);
  EXPECT_EQ(stream_.str(), "");
  progress.finish();
  EXPECT_EQ(stream_.str(), "train  100.0 %  3/3  3.00 steps/s  0:01\n");
}

TEST_F(ProgressTest, AResumedJobHasItsOwnRate) {
  Progress progress("train", 100, "tokens", output(/*terminal=*/false));
  progress.start_at(80);
  wait(10);
  progress.update(90, 5'000, "");
  EXPECT_EQ(stream_.str(), "train   90.0 %  90/100  500 tokens/s  0:10 left\n");
}

TEST_F(ProgressTest, AShareSaysMoreThanTheCount) {
  Progress progress("compare", 12, "steps", output(/*terminal=*/false));
  progress.start_at_share(0.25, "3/12 models");
  wait(10);
  progress.update_share(0.5, "5/12 models", 300, "ssa seed 1");
  wait(10);
  progress.update_share(1, "12/12 models", 900, "");
  EXPECT_EQ(stream_.str(),
            "compare   50.0 %  5/12 models  30.0 steps/s  0:20 left  ssa seed 1\n"
            "compare  100.0 %  12/12 models  45.0 steps/s  0:20\n");
}

TEST_F(ProgressTest, WorksWithoutATotalOrTime) {
  Progress progress("read", 0, "bytes", output(/*terminal=*/false));
  progress.finish();
  EXPECT_EQ(stream_.str(), "read  0\n");
}

TEST_F(ProgressTest, NoStreamShowsNothing) {
  ProgressOutput silent = output(false);
  silent.stream = nullptr;
  Progress progress("read", 10, "bytes", silent);
  wait(100);
  progress.update(5);
  progress.finish();
  EXPECT_EQ(stream_.str(), "");
}

TEST(ProgressText, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(725), "12:05");
  EXPECT_EQ(duration_text(10860), "3:01:00");
  EXPECT_EQ(duration_text(1e300), "years");
}

TEST(ProgressText, Quantities) {
  EXPECT_EQ(quantity_text(0), "0.00");
  EXPECT_EQ(quantity_text(9.999), "10.0");
  EXPECT_EQ(quantity_text(950), "950");
  EXPECT_EQ(quantity_text(999.7), "1.00k");
  EXPECT_EQ(quantity_text(3141), "3.14k");
  EXPECT_EQ(quantity_text(2.5e6), "2.50M");
}

}  // namespace
}  // namespace tempera
