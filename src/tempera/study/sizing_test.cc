#include "tempera/study/sizing.h"

#include "tempera/base/testing.h"
#include "tempera/study/record.h"

namespace tempera::study {
namespace {

constexpr double kMultiplyAddsASecond = 8e9;

// A machine whose speed is known without a clock.
double speed_of(const Size& size) {
  return 3 * forward_cost(size, 256, size.context) / kMultiplyAddsASecond;
}

// A megabyte of text, as bytes, on two cores.
Comparison megabyte() {
  return {.seconds = 600,
          .methods = 4,
          .workers = 2,
          .vocabulary = 256,
          .train_tokens = 950'000,
          .held_out_tokens = 50'000,
          .eval_tokens = 65'536};
}

TEST(Sizing, FillsTheTimeAndNoMore) {
  for (const double seconds : {120.0, 600.0, 3600.0}) {
    Comparison comparison = megabyte();
    comparison.train_tokens *= 1000;
    comparison.seconds = seconds;
    const Plan plan = fit(comparison, speed_of);
    EXPECT_LE(plan.seconds, seconds);
    EXPECT_GE(plan.seconds, 0.8 * seconds);
    EXPECT_EQ(plan.size.seeds, 3);
  }
}

TEST(Sizing, CountsTrainingAndScoringOfEveryModel) {
  Comparison comparison = megabyte();
  comparison.given = {.layers = 2,
                      .width = 128,
                      .heads = 4,
                      .context = 256,
                      .batch = 8,
                      .steps = 100,
                      .warmup = 10,
                      .seeds = 3,
                      .learning_rate = 1e-3};
  const Plan plan = fit(comparison, [](const Size&) { return 1e-4; });
  EXPECT_EQ(plan.tokens, 100 * 8 * 256);
  // 12 models on 2 workers: 6 after each other; and more than the training alone.
  EXPECT_GT(plan.seconds, 6 * 100 * 8 * 256 * 1e-4);
  EXPECT_LT(plan.seconds, 6 * (100 * 8 * 256 + 3 * 50'000) * 1e-4);
}

TEST(Sizing, MoreTimeOrAFasterMachineGivesALargerModel) {
  Comparison comparison = megabyte();
  comparison.train_tokens *= 1000;
  const Plan plan = fit(comparison, speed_of);
  const Plan fast = fit(comparison, [](const Size& size) { return speed_of(size) / 100; });
  comparison.seconds = 60'000;
  const Plan slow = fit(comparison, speed_of);
  EXPECT_GT(slow.size.width, plan.size.width);
  EXPECT_EQ(fast.size.width, slow.size.width);
}

TEST(Sizing, NeverTimesAShapeThatTheTimeCannotPayFor) {
  double widest = 0;
  fit(megabyte(), [&](const Size& size) {
    widest = std::max(widest, static_cast<double>(size.width));
    return speed_of(size);
  });
  EXPECT_LT(widest, 384);
}

TEST(Sizing, WhatIsGivenIsKept) {
  Comparison comparison = megabyte();
  comparison.given.layers = 5;
  comparison.given.heads = 3;
  comparison.given.seeds = 2;
  const Plan plan = fit(comparison, speed_of);
  EXPECT_EQ(plan.size.layers, 5);
  EXPECT_EQ(plan.size.heads, 3);
  EXPECT_EQ(plan.size.seeds, 2);
  EXPECT_EQ(plan.size.width % (8 * 3), 0);
  comparison.given.steps = 7;
  EXPECT_EQ(fit(comparison, speed_of).size.steps, 7);
}

TEST(Sizing, TrainingInTokensHasNoSteps) {
  Comparison comparison = megabyte();
  comparison.model_tokens = 100'000;
  const Plan plan = fit(comparison, speed_of);
  EXPECT_EQ(plan.size.steps, 0);
  EXPECT_EQ(plan.tokens, 100'000);
}

TEST(Sizing, ASmallTextGivesShortRowsFewStepsAndMoreSeeds) {
  Comparison comparison = megabyte();
  comparison.train_tokens = 9'500;
  comparison.held_out_tokens = 500;
  const Plan plan = fit(comparison, speed_of);
  EXPECT_LE(4 * plan.size.context, 500);
  EXPECT_LE(plan.tokens, 8 * 9'500);
  EXPECT_EQ(plan.size.seeds, 8);
  EXPECT_LT(plan.seconds, 600);
  EXPECT_EQ(measured_lengths(comparison, plan.size.context).size(), 3U);
  EXPECT_EQ(measured_lengths(comparison, 400), std::vector<int64_t>{400});
}

TEST(Sizing, IdleWorkersGetSeeds) {
  Comparison comparison = megabyte();
  comparison.workers = 16;
  EXPECT_EQ(fit(comparison, speed_of).size.seeds % 4, 0);
}

TEST(Sizing, NoTimeStillMakesAModelAndSaysHowLong) {
  Comparison comparison = megabyte();
  comparison.seconds = 1;
  const Plan plan = fit(comparison, [](const Size&) { return 1e-3; });
  EXPECT_GE(plan.size.steps, 20);
  EXPECT_GT(plan.seconds, 1);
}

TEST(Sizing, TheStoredSizeComesBackAndAnotherIsRefused) {
  const Comparison comparison = megabyte();
  const Plan plan = fit(comparison, speed_of);
  const auto stored =
      read_as<Sizing>(Json::parse(as_json(sizing_of(plan, comparison)).dump()), "f");
  EXPECT_EQ(stored.size, plan.size);
  EXPECT_EQ(stored.says, explain(plan, comparison));
  GivenSize given;
  check_chosen(stored.size, given, "run");
  given.layers = plan.size.layers;
  check_chosen(stored.size, given, "run");
  given.layers = plan.size.layers + 1;
  EXPECT_TRUE(says(message_of<UsageError>([&] { check_chosen(stored.size, given, "run"); }),
                   concat("--layers: ", *given.layers, " given, 'run' holds a comparison with ",
                          plan.size.layers)));
}

TEST(Sizing, SaysWhatItChoseAndWhatMoreTimeBuys) {
  const Comparison comparison = megabyte();
  const Plan plan = fit(comparison, speed_of);
  std::string all;
  for (const auto& line : explain(plan, comparison)) all += line + "\n";
  for (const char* words : {"12 models", "passes over the text", "can show", "cannot show",
                            "50,000 held-out tokens", "more time"})
    EXPECT_NE(all.find(words), std::string::npos) << words << " in\n" << all;
}

}  // namespace
}  // namespace tempera::study
