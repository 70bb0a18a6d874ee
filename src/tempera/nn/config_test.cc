#include "tempera/nn/config.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/config/settings.h"

namespace tempera::nn {
namespace {

using Layers = std::vector<bool>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ModelConfig valid() {
  ModelConfig config;
  config.vocabulary = 100;
  return config;
}

// The message of the error that validate() throws; empty if it throws none.
std::string refusal(const ModelConfig& config) {
  try {
    config.validate();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Layers, RangesAndLists) {
  EXPECT_EQ(parse_layers("all", 3), (Layers{true, true, true}));
  EXPECT_EQ(parse_layers("1-", 4), (Layers{false, true, true, true}));
  EXPECT_EQ(parse_layers("0-1,3", 5), (Layers{true, true, false, true, false}));
  EXPECT_EQ(parse_layers("2", 3), (Layers{false, false, true}));
}

TEST(Layers, RefusesWhatIsNoListOrOutside) {
  for (const char* text :
       {"", "x", "1,,2", "-2", "3-1", "4", "0-4", "1-2-3", "99999999999999999999"})
    EXPECT_THROW(parse_layers(text, 4), UsageError) << text;
}

TEST(Config, ReadsBackWhatItWrites) {
  auto config = phonebook_model();
  config.temperature = {"ssa", "0", {{"g", std::string("linear")}}};
  const auto json = config::to_json(config::describe(config));
  EXPECT_EQ(json["model"]["width"], 64);
  EXPECT_EQ(json["model"]["qk-norm"], "plain");
  EXPECT_EQ(json["temperature"]["g"], "linear");
  const auto back = config::from_json<ModelConfig>(json, "test");
  EXPECT_EQ(config::to_json(config::describe(back)), json);
  const auto toml = config::dump_toml(config::describe(config));
  EXPECT_EQ(config::from_toml<ModelConfig>(toml, "test"), back);
}

TEST(Config, AMethodsOptionsExistWithTheMethodOnly) {
  const auto read = [](const char* toml) { return config::from_toml<ModelConfig>(toml, "test"); };
  const auto config = read("[temperature]\nmethod = \"focal\"\nt = 0.7\n[model]\nlayers = 3");
  EXPECT_EQ(std::get<double>(config.method_of_layer(2)[0].options.at("t")), 0.7);
  EXPECT_THROW(read("[temperature]\nt = 0.7"), UsageError);
  EXPECT_THROW(read("[temperature]\nmethod = \"fokal\""), UsageError);
}

TEST(Config, TemperatureOnSomeLayers) {
  auto config = valid();
  config.temperature = {"focal", "4-", {}};
  EXPECT_EQ(config.method_of_layer(3)[0].name, "softmax");
  EXPECT_EQ(config.method_of_layer(4)[0].name, "focal");
}

TEST(Config, SaysWhatIsWrong) {
  EXPECT_EQ(refusal(valid()), "");
  EXPECT_EQ(refusal(phonebook_model()), "");
  const auto with = [](auto change) {
    auto config = valid();
    change(config);
    return refusal(config);
  };
  EXPECT_NE(with([](auto& c) { c.vocabulary = 0; }).find("vocabulary"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.heads = 7; }).find("does not divide the width 384"),
            std::string::npos);
  EXPECT_NE(with([](auto& c) { c.heads = 96; }).find("a head has 4 columns"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.head_size = 20; }).find("multiple of 8"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.kv_heads = 4; }).find("kv-heads"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.outputs = 16; }).find("tied"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.rope.fraction = 0.01; }).find("rope.fraction"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.rope.fraction = 1.5; }).find("rope.fraction"), std::string::npos);
  for (const double bad : {-1.0, kNan, kInfinity}) {
    EXPECT_NE(with([&](auto& c) { c.rope.base = bad; }).find("rope.base"), std::string::npos);
    EXPECT_NE(with([&](auto& c) { c.norm_eps = bad; }).find("norm-eps"), std::string::npos);
  }
  EXPECT_NE(with([](auto& c) { c.rope.base = 0; }).find("rope.base"), std::string::npos);
  EXPECT_EQ(with([](auto& c) { c.norm_eps = 0; }), "");
  EXPECT_EQ(with([](auto& c) {
              c.position = PositionKind::kLearned;
              c.rope.base = 0;
            }),
            "");
  EXPECT_NE(with([](auto& c) { c.temperature.layers = "6-"; }).find("0 to 5"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.temperature.method = "sssa"; }).find("ssa"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.dropout_residual = 1; }).find("dropout"), std::string::npos);
}

TEST(Config, SizesThatFollow) {
  auto config = valid();
  EXPECT_EQ(config.size_of_mlp(), 1024);
  EXPECT_EQ(config.size_of_head(), 64);
  config.rope.fraction = 0.25;
  EXPECT_EQ(config.rotary_size(), 16);
  config.activation = Activation::kGelu;
  EXPECT_EQ(config.size_of_mlp(), 1536);
  EXPECT_EQ(config.max_length(), 0);
  config.position = PositionKind::kLearned;
  EXPECT_EQ(config.max_length(), 512);
}

}  // namespace
}  // namespace tempera::nn
