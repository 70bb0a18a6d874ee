#include "tempera/lens/factors.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/lens/view.h"
#include "tempera/nn/testing_model.h"

namespace tempera::lens {
namespace {

nn::Batch short_text() {
  nn::Batch batch;
  batch.tokens = nn::token_pattern(1, 20, 11);
  return batch;
}

// The model that is written does what the page showed.
void expect_what_was_shown(const nn::ModelConfig& config) {
  const auto model = nn::moved_model(config);
  model->eval();
  const Factors factors = {{0.5, 1}, {1, 3}};
  const View shown = look(*model, short_text(), {.factors = factors});
  const auto written = with_factors(*model, factors);
  const View found = look(*written, short_text());
  for (size_t layer = 0; layer < 2; ++layer)
    EXPECT_LT(nn::largest_difference(found.attentions[layer].metric(Metric::kEntropy),
                                     shown.attentions[layer].metric(Metric::kEntropy)),
              1e-5)
        << config.temperature.method;
  EXPECT_NEAR(found.next[0].log_probability, shown.next[0].log_probability, 1e-5)
      << config.temperature.method;
  const View as_it_was = look(*model, short_text());
  EXPECT_GT(nn::largest_difference(as_it_was.attentions[0].entropy, found.attentions[0].entropy),
            1e-3);
}

TEST(LensFactors, AModelWithThemDoesWhatWasShown) {
  for (const auto* method : {"softmax", "focal", "ssa", "head", "head,value", "ssa+head"})
    expect_what_was_shown(nn::with_method(nn::tiny_config(), method));
  expect_what_was_shown(nn::with_method(nn::tiny_config(), "head", {{"by", std::string("layer")}}));
}

TEST(LensFactors, LayersWithoutATemperatureCannotChange) {
  auto config = nn::with_method(nn::tiny_config(), "focal");
  config.temperature.layers = "1";
  const auto model = nn::moved_model(config);
  EXPECT_NO_THROW(with_factors(*model, {{1, 1}, {2, 1}}));
  EXPECT_THROW(with_factors(*model, {{2, 1}, {1, 1}}), Error);
  EXPECT_THROW(with_factors(*model, {{1, 1}}), Error);
}

}  // namespace
}  // namespace tempera::lens
