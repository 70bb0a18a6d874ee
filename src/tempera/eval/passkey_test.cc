#include "tempera/eval/passkey.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/eval/testing_copier.h"

namespace tempera::eval {
namespace {

TEST(Passkey, FoundWhereTheModelReaches) {
  const text::ByteTokenizer bytes;
  CopyingModel model(600);
  const PasskeyOptions options{.lengths = {400, 1000}, .depths = {0, 0.5, 1}, .cases = 3};
  int64_t done = 0;
  const Grid grid = score_passkey(model, bytes, options, [&](int64_t cases) { done = cases; });
  EXPECT_EQ(done, 18);
  EXPECT_EQ(options.all_cases(), 18);
  for (size_t d = 0; d < 3; ++d) {
    EXPECT_EQ(grid.cell(0, d).hits, 3) << d;
    EXPECT_EQ(grid.cell(1, d).hits, d == 0 ? 0 : 3) << d;  // 1000 bytes back is out of reach
    EXPECT_EQ(grid.cell(1, d).cases, 3);
  }
  EXPECT_NEAR(grid.overall().value, 15.0 / 18, 1e-12);
}

TEST(Passkey, RefusesWhatCannotBeAsked) {
  const text::ByteTokenizer bytes;
  CopyingModel model(1);
  const auto score = [&](const PasskeyOptions& options) {
    return score_passkey(model, bytes, options);
  };
  EXPECT_THROW(score({.lengths = {40}}), UsageError);
  EXPECT_THROW(score({.lengths = {}}), UsageError);
  EXPECT_THROW(score({.depths = {50}}), UsageError);
  EXPECT_THROW(score({.cases = 0}), UsageError);
  EXPECT_THROW(score({.hay = {"/nowhere/hay.txt"}}), Error);
}

}  // namespace
}  // namespace tempera::eval
