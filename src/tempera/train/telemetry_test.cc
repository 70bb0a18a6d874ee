#include "tempera/train/telemetry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"
#include "tempera/train/event_log.h"
#include "tempera/train/loss_chart.h"

namespace tempera::train {
namespace {

TEST(Telemetry, GradientNormsAreByGroup) {
  auto config = nn::with_method(nn::tiny_config(), "ssa");
  config.layers = 1;
  const auto model = nn::make_model(config, 1);
  const auto parameters = model->parameter_list();
  double of_attention = 0;
  for (const auto& parameter : parameters) {
    torch::Tensor tensor = parameter.tensor;
    if (parameter.name == "layers.0.attention.qkv.weight" ||
        parameter.name == "layers.0.attention.out.weight") {
      tensor.mutable_grad() = torch::full_like(tensor, 2);
      of_attention += 4 * static_cast<double>(tensor.numel());
    }
    if (parameter.name == "layers.0.mlp.out.weight") {
      tensor.mutable_grad() = torch::zeros_like(tensor);
      tensor.mutable_grad()[0][0] = 3;
    }
  }
  const Json norms = norms_by_group(squared_norms(parameters), parameters);
  EXPECT_NEAR(norms.at("attention").get<double>(), std::sqrt(of_attention), 1e-2);
  EXPECT_EQ(norms.at("mlp"), 3);
  EXPECT_EQ(norms.at("embedding"), 0);
  EXPECT_EQ(norms.at("vector"), 0);
  EXPECT_EQ(norms.at("temperature"), 0);
  EXPECT_FALSE(norms.contains("adapter"));
}

TEST(Telemetry, QuantilesAreOverTheHeads) {
  auto config = nn::with_method(nn::tiny_config(), "focal", {{"t", 0.5}});
  config.heads = 4;
  const auto model = nn::make_model(config, 1);
  const auto batch = nn::tiny_batch(1);
  const Json numbers = attention_numbers(*model, batch);
  EXPECT_FALSE(model->is_training());
  EXPECT_EQ(numbers.at("heads"), 4);
  ASSERT_EQ(numbers.at("layers").size(), 2U);
  const auto found = model->inspect(batch, {}, {});
  for (size_t layer = 0; layer < 2; ++layer) {
    const Json& told = numbers.at("layers")[layer];
    EXPECT_EQ(told.at("layer"), std::to_string(layer));
    EXPECT_EQ(told.at("temperature"), Json({0.5, 0.5, 0.5, 0.5, 0.5}));
    EXPECT_FALSE(told.contains("value_scale"));
    const auto sorted = std::get<0>(found[layer].mean_entropy.to(torch::kFloat64).sort());
    const auto five =
        torch::quantile(sorted, torch::tensor({0.0, 0.25, 0.5, 0.75, 1.0}, torch::kFloat64), 0);
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_NEAR(told.at("entropy")[static_cast<size_t>(i)].get<double>(), five[i].item<double>(),
                  1e-4);
    EXPECT_GT(told.at("entropy")[4], told.at("entropy")[0]);
    EXPECT_NEAR(told.at("largest_logit")[4].get<double>(),
                found[layer].largest.max().item<double>(), 1e-4);
  }
}

TEST(Telemetry, TheAttentionsOfAnEncoderDecoderHaveNames) {
  auto config = nn::tiny_config();
  config.kind = nn::ModelKind::kEncoderDecoder;
  const auto model = nn::make_model(config, 1);
  auto batch = nn::tiny_batch(1);
  batch.source = nn::token_pattern(1, 7, 11, 2.0);
  const Json numbers = attention_numbers(*model, batch);
  std::vector<std::string> names;
  for (const Json& layer : numbers.at("layers")) {
    names.push_back(layer.at("layer"));
    EXPECT_TRUE(layer.contains("entropy") && layer.contains("largest_logit"));
    EXPECT_FALSE(layer.contains("temperature"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"encoder 0", "encoder 1", "decoder 0", "cross 0",
                                             "decoder 1", "cross 1"}));
}

Json watched_line() {
  return Json::parse(R"({"step": 7, "loss": 1.5, "learning_rate": null, "watched": {
      "heads": 8, "layers": [{"layer": "cross 1", "entropy": [1, 2, 2, 3, 5]}],
      "gradient_norms": {"mlp": 0.25}}})");
}

TEST(EventLog, ALineIsScalarsAndHistograms) {
  const auto values = event_values(watched_line());
  ASSERT_EQ(values.size(), 4U);
  EXPECT_EQ(values[0].tag, "loss/train");
  EXPECT_EQ(std::get<float>(values[0].value), 1.5F);
  EXPECT_EQ(values[1].tag, "gradient_norm/mlp");
  EXPECT_EQ(values[2].tag, "entropy_median/layer_cross_1");
  EXPECT_EQ(std::get<float>(values[2].value), 2);
  EXPECT_EQ(values[3].tag, "entropy/layer_cross_1");
  const auto& histogram = std::get<io::EventHistogram>(values[3].value);
  EXPECT_EQ(histogram.least, 1);
  EXPECT_EQ(histogram.largest, 5);
  EXPECT_EQ(histogram.limits, (std::vector<double>{2, 3, 5}));
  EXPECT_EQ(histogram.counts, (std::vector<double>{4, 2, 2}));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST(EventLog, WritesANewFileAndLeavesThoseOfOthers) {
  const TempFolder temporary;
  const auto folder = temporary.path() / "made" / "events";
  { const EventLog log(folder, "a1", {watched_line()}); }
  const std::string first = "events.out.tfevents.0000000001.tempera-a1";
  ASSERT_EQ(names_in(folder), (std::vector<std::string>{first}));
  write_file(folder / "notes.txt", "mine");
  { EventLog(folder, "a1", {}).append(watched_line()); }
  const std::string second = "events.out.tfevents.0000000002.tempera-a1";
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{second, "notes.txt"}));
  const std::string before = read_file(folder / second, 10000);
  EXPECT_THROW(EventLog(folder, "b2", {}), Error);
  write_file(folder / "events.out.tfevents.1.host", "mine");
  EXPECT_THROW(EventLog(folder, "a1", {}), Error);
  EXPECT_EQ(read_file(folder / second, 10000), before);
  EXPECT_EQ(names_in(folder).size(), 3U);
  EXPECT_THROW(EventLog(folder / "notes.txt", "a1", {}), Error);
}

TEST(LossChart, HasAColumnForTheMeanOfSteps) {
  LossChart chart(20, 3);
  for (int step = 0; step <= 26; ++step) chart.add('*', step, step < 13 ? 4.0 : 2.0);
  chart.add('o', 26, 3.0);
  chart.add('o', 26, std::nan(""));
  const auto lines = chart.lines();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "4.000 |******       ");
  EXPECT_EQ(lines[1], "      |            o");
  EXPECT_EQ(lines[2], "2.000 |      *******");
  EXPECT_EQ(lines[3], "       0          26");
}

TEST(LossChart, DrawsNothingFromOneStepOrWithoutRoom) {
  LossChart one(40, 5);
  one.add('*', 3, 1);
  EXPECT_TRUE(one.lines().empty());
  LossChart narrow(12, 5);
  for (const int step : {1, 2}) narrow.add('*', step, 1);
  EXPECT_TRUE(narrow.lines().empty());
  LossChart wild(40, 5);
  wild.add('*', -1e308, -1e308);
  wild.add('*', 1e308, 1e308);
  EXPECT_EQ(wild.lines().size(), 6U);
}

}  // namespace
}  // namespace tempera::train
