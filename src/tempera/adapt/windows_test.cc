#include "tempera/adapt/windows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/data/testing_rows.h"

namespace tempera::adapt {
namespace {

constexpr WindowPlan kPlan{.context = 8192, .steps = 10, .seed = 4};

data::Batch batch(const WindowOptions& options, uint64_t step) {
  return learning_windows(data::rows_of({90'000}, 4096), options, kPlan)
      ->train(data::whole_batch(step, 2));
}

TEST(Windows, NothingIsDoneUnlessItIsAskedFor) {
  const auto text = data::rows_of({90'000}, 4096);
  EXPECT_EQ(learning_windows(text, {}, kPlan), text);
  EXPECT_TRUE(window_lines({}, 4096, kPlan).empty());
  EXPECT_TRUE(to_json(WindowOptions()).is_null());
}

TEST(Windows, EchoesOfSpreadWindowsKeepTheirPlaces) {
  const auto both = batch({.echo = 0.03, .spread = 4096}, 0);
  EXPECT_EQ(both.tokens, batch({.echo = 0.03}, 0).tokens);
  EXPECT_EQ(both.shares, batch({.echo = 0.03}, 0).shares);
  EXPECT_EQ(both.positions, batch({.spread = 4096}, 0).positions);
  EXPECT_EQ(both.position_end, 8192);
}

TEST(Windows, ShortOnesArePlainText) {
  const WindowOptions options{.short_share = 0.25, .echo = 0.03, .spread = 4096};
  EXPECT_FALSE(batch(options, 2).positions.empty());
  const auto cut = batch(options, 3), plain = batch({}, 3);
  EXPECT_EQ(cut.tokens, plain.tokens);
  EXPECT_TRUE(cut.positions.empty() && cut.shares.empty());
  EXPECT_EQ(cut.document_lengths, (std::vector<int64_t>{2048, 2048, 2048, 2048}));
}

TEST(Windows, EchoesEndInTime) {
  const WindowOptions options{.echo = 0.03, .echo_until = 0.8};
  EXPECT_FALSE(batch(options, 7).shares.empty());
  EXPECT_TRUE(batch(options, 8).shares.empty());
}

TEST(Windows, SayWhatIsDone) {
  const auto lines = window_lines(
      {.echo = 0.03125, .echo_until = 0.8, .spread = 4096, .spread_correction = 1}, 4096, kPlan);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "echo: in windows of 4096 tokens, 4 spans of 32 repeat earlier text of their document, "
            "from up to the whole window back; their tokens from the 7th on count 5 times; steps 1 "
            "to 8 of 10");
  EXPECT_EQ(lines[1],
            "spread: windows of 4096 tokens in 4 parts, at positions up to 8192; logits times (log "
            "keys / log position)^1 where keys are missing");
  EXPECT_TRUE(says(window_lines({.echo = 0.1}, 4096, kPlan)[0], "; all 10 steps"));
  const auto json = to_json(WindowOptions{.echo = 0.1, .spread = 64});
  EXPECT_EQ(json["echo"]["length"], 32);
  EXPECT_EQ(json["spread"]["parts"], 4);
  EXPECT_FALSE(json.contains("short_share"));
}

TEST(Windows, RefuseWhatDoesNotGoTogether) {
  const auto invalid = [](const WindowOptions& options) {
    return message_of<UsageError>([&] { options.validate(); });
  };
  EXPECT_TRUE(says(invalid({.echo_length = 64}), "--echo 0.03"));
  EXPECT_TRUE(says(invalid({.spread_parts = 2}), "--spread 2048"));
  nn::ModelConfig model;
  const auto misfit = [&](const WindowOptions& options, int64_t length) {
    return message_of<UsageError>([&] { options.check_fits(model, length, 8192); });
  };
  EXPECT_TRUE(says(misfit({.short_share = 0.5}, 2048), "as short as its pieces (2048)"));
  EXPECT_TRUE(says(misfit({.echo = 0.1}, 64), "a quarter"));
  EXPECT_TRUE(says(misfit({.spread = 8192}, 8192), "the context is 8192"));
  EXPECT_TRUE(says(misfit({.spread = 64, .spread_parts = 9}, 64), "at most 8"));
  EXPECT_TRUE(says(misfit({.spread = 15}, 15), "at least 16"));
  model.window = 128;
  EXPECT_TRUE(says(misfit({.spread = 4096}, 4096), "a window of 128"));
  model.position = nn::PositionKind::kLearned;
  EXPECT_TRUE(says(misfit({.spread = 4096}, 4096), "no rotary positions"));
}

}  // namespace
}  // namespace tempera::adapt
