#include "tempera/adapt/rope_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/nn/positions.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

using nn::RopeScaling;

// Four frequencies, 1 to 1/1000 in steps of ten, of a model that was trained at 1,000 tokens: they
// turn 159, 15.9, 1.59 and 0.159 times there.
nn::ModelConfig config() {
  nn::ModelConfig config;
  config.vocabulary = 100;
  config.width = 16;
  config.heads = 2;
  config.context = 1000;
  config.rope.base = 1e4;
  return config;
}

double turns(int i) { return 1000 * std::pow(10.0, -i) / (2 * std::numbers::pi); }

TEST(RopeRule, RotationsKeepWhatTurnsOften) {
  const auto found = stretch_rope(config(), 4000, {});
  EXPECT_EQ(found.rope.scaling, RopeScaling::kFactors);
  ASSERT_EQ(found.rope.factors.size(), 4U);
  EXPECT_DOUBLE_EQ(found.rope.factors[0], 1);
  const double share = (turns(1) - 1) / 127;
  EXPECT_NEAR(found.rope.factors[1], 1 / (share + (1 - share) / 4), 1e-9);
  EXPECT_NEAR(found.rope.factors[3], 4, 1e-9);
  EXPECT_EQ(found.rope.original_context, 1000);
  EXPECT_NEAR(found.logits, std::pow(0.1 * std::log(4) + 1, 2), 1e-12);
  EXPECT_NEAR(std::pow(nn::rotary_amplitude(found.rope), 2), found.logits, 1e-12);
}

TEST(RopeRule, TheNumbersOfARule) {
  const auto found =
      stretch_rope(config(), 4000, {.stretch = 8, .low = 0.1, .high = 10, .logits = 1});
  EXPECT_DOUBLE_EQ(found.rope.factors[1], 1);
  const double share = (turns(2) - 0.1) / 9.9;
  EXPECT_NEAR(found.rope.factors[2], 1 / (share + (1 - share) / 8), 1e-9);
  EXPECT_EQ(found.stretch, 8);
  EXPECT_EQ(nn::rotary_amplitude(found.rope), 1);
}

TEST(RopeRule, WhatOtherProgramsCanSayIsSaidSo) {
  const auto rope = [](RopeRule rule, double base = 0) {
    return stretch_rope(config(), 2000, {.rule = rule, .base = base}).rope;
  };
  EXPECT_EQ(rope(RopeRule::kLinear).scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope(RopeRule::kLinear).factor, 2);
  EXPECT_EQ(rope(RopeRule::kYarn).scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope(RopeRule::kYarn).original_context, 1000);
  EXPECT_NEAR(nn::rotary_amplitude(rope(RopeRule::kYarn)), 0.1 * std::log(2) + 1, 1e-12);
  EXPECT_EQ(rope(RopeRule::kYarn).attention_factor, 0) << "YaRN's own needs no word";
  const auto sharper = stretch_rope(config(), 2000, {.rule = RopeRule::kYarn, .logits = 4}).rope;
  EXPECT_EQ(sharper.attention_factor, 2);
  EXPECT_EQ(rope(RopeRule::kLlama3).scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope(RopeRule::kBase).base, 4e4);
  EXPECT_EQ(rope(RopeRule::kBase, 7e4).base, 7e4);
  EXPECT_EQ(rope(RopeRule::kBase), (nn::RopeConfig{.base = 4e4}));
  EXPECT_EQ(rope(RopeRule::kNone), config().rope);
  const auto ntk = nn::rotary_frequencies(rope(RopeRule::kNtk), 8, 2000, 2000);
  EXPECT_NEAR(ntk[0].item<double>(), 1, 1e-12);
  EXPECT_NEAR(ntk[3].item<double>(), 1e-3 / 2, 1e-12) << "the slowest is divided by the stretch";
}

// A rule on a scaled model changes the frequencies that it has, not those of its base.
TEST(RopeRule, AScaledModelIsAStartingPoint) {
  for (const auto scaling : {RopeScaling::kLinear, RopeScaling::kDynamic, RopeScaling::kYarn,
                             RopeScaling::kLlama3, RopeScaling::kFactors}) {
    auto scaled = config();
    scaled.context = 2000;
    scaled.rope.scaling = scaling;
    if (scaling == RopeScaling::kFactors) scaled.rope.factors = {1, 1.5, 2, 3};
    if (scaling != RopeScaling::kFactors) scaled.rope.factor = 2;
    scaled.rope.original_context = 1000;
    const auto start = nn::rotary_frequencies(scaled.rope, 8, 2000, 2000);
    for (const auto rule : {RopeRule::kRotations, RopeRule::kYarn, RopeRule::kNtk, RopeRule::kBase,
                            RopeRule::kLinear, RopeRule::kLlama3}) {
      const auto found = stretch_rope(scaled, 4000, {.rule = rule});
      const auto now = nn::rotary_frequencies(found.rope, 8, 4000, 4000);
      EXPECT_NEAR(now[0].item<double>(), start[0].item<double>(),
                  rule == RopeRule::kLinear ? 1 : 1e-9);
      const double slowest = (start[3] / now[3]).item<double>();
      EXPECT_NEAR(slowest, rule == RopeRule::kBase ? std::pow(2.0, 1.5) : 2, 1e-9);
      EXPECT_NEAR(nn::rotary_amplitude(found.rope),
                  nn::rotary_amplitude(scaled.rope) * std::sqrt(found.logits), 1e-9);
    }
    const auto kept = stretch_rope(scaled, 4000, {.rule = RopeRule::kNone}).rope;
    EXPECT_EQ(kept == scaled.rope, scaling != RopeScaling::kDynamic);
    EXPECT_TRUE(torch::equal(nn::rotary_frequencies(kept, 8, 4000, 4000), start));
  }
}

TEST(RopeRule, YarnSaysWhatTheModelReads) {
  auto scaled = config();
  scaled.rope.scaling = RopeScaling::kYarn;
  scaled.rope.original_context = 1000;
  scaled.rope.factor = 4;
  EXPECT_EQ(trained_context(scaled), 4000);
  scaled.context = 8000;
  EXPECT_EQ(trained_context(scaled), 8000);
}

TEST(RopeRule, RefusesWhatCannotBe) {
  const auto refusal = [](const nn::ModelConfig& model, int64_t context, RopeOptions options = {}) {
    return message_of<UsageError>([&] { stretch_rope(model, context, options); });
  };
  EXPECT_NE(refusal(config(), 500).find("trained at 1000"), std::string::npos);
  auto learned = config();
  learned.position = nn::PositionKind::kLearned;
  EXPECT_NE(refusal(learned, 4000).find("no rotary positions"), std::string::npos);
  auto single = config();
  single.rope.fraction = 0.25;
  EXPECT_NE(refusal(single, 4000, {.rule = RopeRule::kNtk}).find("single"), std::string::npos);
  const auto invalid = [](const RopeOptions& options) {
    return message_of<UsageError>([&] { options.validate(); });
  };
  EXPECT_NE(invalid({.base = 1e5}).find("--rope base"), std::string::npos);
  EXPECT_NE(invalid({.low = 200}).find("--rope-high (128)"), std::string::npos);
  EXPECT_NE(invalid({.rule = RopeRule::kNtk, .low = 2}).find("ramp"), std::string::npos);
  EXPECT_NE(invalid({.stretch = 0.5}).find("at least 1"), std::string::npos);
  EXPECT_NE(invalid({.rule = RopeRule::kBase, .base = 0.5}).find("above 1"), std::string::npos);
}

TEST(RopeRule, TwoSetsOfFrequenciesAreNotLearned) {
  auto two = config();
  two.rope.scaling = RopeScaling::kFactors;
  two.rope.factors = {1, 1.5, 2, 3};
  two.rope.original_context = 1000;
  EXPECT_EQ(learnable_rope(two).factors, two.rope.factors);
  two.rope.short_factors = {1, 1, 1, 1};
  const auto refusal = message_of<UsageError>([&] { learnable_rope(two); });
  EXPECT_EQ(refusal,
            "--learn rope: the model has two sets of frequencies, of short and of long texts; give "
            "--context");
}

TEST(RopeRule, AllFactorsStandInTheReport) {
  const RopeOptions options;
  const auto json = to_json(stretch_rope(config(), 4000, options), options, 8);
  EXPECT_EQ(json["rule"], "rotations");
  EXPECT_EQ(json["factors"].size(), 4U);
  EXPECT_NEAR(json["factors"][3].get<double>(), 4, 1e-9);
}

}  // namespace
}  // namespace tempera::adapt
