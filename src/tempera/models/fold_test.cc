#include "tempera/models/fold.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/models/testing_models.h"

namespace tempera::models {
namespace {

std::shared_ptr<nn::Model> model_of(const FoldedModel& folded) {
  auto model = nn::make_empty_model(folded.config);
  model->load_state(folded.state);
  return model;
}

std::string refusal(const nn::ModelConfig& config) {
  const auto model = nn::moved_model(config);
  return message_of([&] { fold(*model); });
}

TEST(Fold, APlainModelHasTheSameLogits) {
  for (const auto qk_norm : {nn::QkNorm::kNone, nn::QkNorm::kWide}) {
    nn::ModelConfig config = nn::with_method(nn::tiny_config(), "head,value");
    config.kv_heads = 1;
    config.qk_norm = qk_norm;
    const auto model = nn::moved_model(config);
    EXPECT_TRUE(needs_fold(*model));
    const auto folded = model_of(fold(*model));
    EXPECT_EQ(folded->config().temperature.method, "softmax");
    EXPECT_FALSE(needs_fold(*folded));
    EXPECT_EQ(folded->temperature_parameter_count(), 0);
    EXPECT_LT(logit_difference(*folded, *model), kLogitTolerance);
    const auto plain =
        clone_model(*model, {.temperature = nn::TemperatureConfig{.method = "softmax"}});
    EXPECT_GT(logit_difference(*plain, *model), 10 * kLogitTolerance) << "nothing to fold";
  }
}

TEST(Fold, AGainThatHeadsShareTakesUpOneTemperatureALayer) {
  nn::ModelConfig config =
      nn::with_method(nn::tiny_config(), "head", {{"by", std::string("layer")}});
  config.qk_norm = nn::QkNorm::kGain;
  const auto model = nn::moved_model(config);
  EXPECT_LT(logit_difference(*model_of(fold(*model)), *model), kLogitTolerance);
  config.temperature.options = {{"by", std::string("head")}};
  EXPECT_TRUE(says(refusal(config), "use one temperature a layer"));
  config.qk_norm = nn::QkNorm::kPlain;
  EXPECT_TRUE(says(refusal(config), "without a gain"));
}

TEST(Fold, WhatDependsOnTheTokenIsRefused) {
  EXPECT_TRUE(says(refusal(nn::with_method(nn::tiny_config(), "ssa")),
                   "layer 0: the temperature 'ssa' depends on the token or its position"));
}

TEST(Fold, AdaptersGoIntoTheirMatrices) {
  const auto base = nn::make_model(nn::tiny_config(), 7);
  const auto model = clone_model(*base, {.lora = nn::LoraConfig{.rank = 2, .alpha = 4}});
  {
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : model->parameter_list())
      if (nn::is_adapter(parameter.name)) parameter.tensor.normal_(0, 0.1);
  }
  EXPECT_TRUE(needs_fold(*model));
  const auto folded = model_of(fold(*model));
  EXPECT_LT(logit_difference(*folded, *model), kLogitTolerance);
  EXPECT_GT(logit_difference(*base, *model), 10 * kLogitTolerance) << "nothing to fold";
}

TEST(Fold, OneFactorForAllLogitsIsFound) {
  const auto config = nn::with_method(nn::tiny_config(), "focal", {{"t", 0.5}});
  EXPECT_DOUBLE_EQ(common_logit_factor(*nn::make_model(config, 7)).value(), 2);
  EXPECT_EQ(common_logit_factor(*nn::make_model(nn::tiny_config(), 7)), 1);
  for (const char* method : {"head", "value", "ssa"})
    EXPECT_FALSE(common_logit_factor(*nn::moved_model(nn::with_method(nn::tiny_config(), method))))
        << method;
}

}  // namespace
}  // namespace tempera::models
