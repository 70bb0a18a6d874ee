#include "tempera/base/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace tempera {
namespace {

TEST(InterruptGuard, NotesTheFirstSignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const InterruptGuard guard;
    EXPECT_EQ(InterruptGuard::signal(), 0);
    std::raise(signal);
    EXPECT_EQ(InterruptGuard::signal(), signal);
  }
}

TEST(InterruptGuardDeathTest, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGINT);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(InterruptGuard, RestoresTheHandler) {
  static volatile std::sig_atomic_t seen = 0;
  const auto before = std::signal(SIGTERM, [](int) { seen = 1; });
  {
    const InterruptGuard guard;
    EXPECT_THROW(InterruptGuard{}, Error);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(seen, 1);
  std::signal(SIGTERM, before);
}

TEST(Interrupted, KnowsItsSignal) {
  const Interrupted error(SIGINT, "saved");
  EXPECT_EQ(error.signal(), SIGINT);
  EXPECT_STREQ(error.what(), "saved");
}

}  // namespace
}  // namespace tempera
