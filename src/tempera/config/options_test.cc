#include "tempera/config/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/config/testing_settings.h"

namespace tempera::config {
namespace {

using nlohmann::ordered_json;

TestSettings changed_settings() {
  TestSettings settings;
  settings.model = "some/folder";
  settings.fast = true;
  settings.causal = false;
  settings.steps = 7;
  settings.rate = 0.1;
  settings.note = "quote \" backslash \\ line\n tab\t control \x01 \xc3\xa4";
  settings.colour = Colour::kGreen;
  settings.betas = {};
  settings.stop = {"a,b", ""};
  settings.window = 64;
  settings.temperature.method = "ssa";
  settings.temperature.layers = {1, 2};
  settings.method_options = {{"t", 2.0}, {"g", std::string("linear")}, {"keys", true}};
  return settings;
}

TEST(Options, DescribeHasValuesInOrder) {
  const Options options = describe(changed_settings());
  EXPECT_EQ(options.entries().front().name(), "model");
  EXPECT_EQ(options.entries().back().name(), "temperature.keys");
  EXPECT_EQ(options.find("steps")->value, Value(int64_t{7}));
  EXPECT_EQ(options.find("colour")->value, Value(std::string("green")));
  EXPECT_EQ(options.find("temperature")->name(), "temperature.method");
  EXPECT_EQ(options.find("temperature.g")->value, Value(std::string("linear")));
  EXPECT_EQ(kind_of(options.find("resume")->value), Kind::kNone);
  EXPECT_EQ(options.find("resume")->kind, Kind::kText);
  EXPECT_EQ(options.find("nothing"), nullptr);
}

TEST(Options, JsonRoundTrip) {
  const TestSettings settings = changed_settings();
  const ordered_json json = to_json(describe(settings));
  EXPECT_EQ(json["temperature"]["method"], "ssa");
  EXPECT_EQ(json["temperature"]["layers"], ordered_json({1, 2}));
  EXPECT_TRUE(json["resume"].is_null());
  const auto text = json.dump();
  EXPECT_EQ(config::from_json<TestSettings>(ordered_json::parse(text), "the checkpoint"), settings);
}

TEST(Options, JsonOfAnotherShapeIsRefused) {
  const auto load = [](const char* text) {
    return config::from_json<TestSettings>(ordered_json::parse(text), "the checkpoint");
  };
  EXPECT_NO_THROW(load(R"({"model": "m"})"));
  for (const char* text :
       {"[]", "3", R"({"model": 3})", R"({"model": "m", "steps": 18446744073709551615})",
        R"({"model": "m", "steps": null})", R"({"model": "m", "stop": [["a"]]})",
        R"({"model": "m", "stop": [null]})", R"({"model": "m", "steps": {"a": 1}})",
        R"({"model": "m", "other": {}})", R"({"model": "m", "temperature.g": "linear"})"})
    EXPECT_THROW(load(text), UsageError) << text;
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  deep += "1" + std::string(100'000, '}');
  EXPECT_THROW(load(deep.c_str()), UsageError);
}

TEST(Options, MethodOptionsFollowTheMethod) {
  const auto load = [](const char* text) { return from_toml<TestSettings>(text, "f"); };
  const TestSettings focal = load("model = 'm'\ntemperature = 'focal'");
  EXPECT_EQ(focal.method_options, (std::map<std::string, Value>{{"t", 0.4}}));
  const TestSettings ssa = load("model = 'm'\n[temperature]\nmethod = 'ssa'\nkeys = true");
  EXPECT_EQ(ssa.method_options.at("t"), Value(1.0));
  EXPECT_EQ(ssa.method_options.at("keys"), Value(true));
}

TEST(Options, UnknownMethodOptionsAreRefused) {
  TestSettings settings;
  settings.temperature.method = "ssa";
  settings.method_options = {{"key", true}};
  EXPECT_THROW(describe(settings), UsageError);
  settings.method_options = {{"keys", 1.0}};
  EXPECT_THROW(describe(settings), Error);
}

TEST(Options, DeclarationMistakesAreFound) {
  Options options;
  int64_t number = 5;
  options.option("a", number, "help", {.alias = "b"});
  EXPECT_THROW(options.option("a", number, "help"), Error);
  EXPECT_THROW(options.option("b", number, "help"), Error);
  EXPECT_THROW(options.option("c", number, "help", {.alias = "a"}), Error);
  EXPECT_THROW(options.option("d", number, range(6, 7), "help"), Error);
  std::map<std::string, Value> values;
  EXPECT_THROW(options.declared("g", {{"e", {}, "no default"}}, values), Error);
}

TEST(Differences, NameWhatDiffers) {
  TestSettings stored;
  stored.model = "m";
  TestSettings given = stored;
  EXPECT_TRUE(differences(describe(given), describe(stored)).empty());
  given.out = "elsewhere";
  EXPECT_TRUE(differences(describe(given), describe(stored)).empty());
  given.steps = 5;
  given.window = 3;
  given.temperature.method = "focal";
  stored.temperature.method = "ssa";
  EXPECT_EQ(to_text(differences(describe(given), describe(stored))),
            "steps: given 5, in the run 1000\n"
            "window: given 3, in the run not set\n"
            "temperature.method: given \"focal\", in the run \"ssa\"\n"
            "temperature.t: given 0.4, in the run 1.0\n"
            "temperature.g: given not set, in the run \"sigmoid\"\n"
            "temperature.keys: given not set, in the run false\n");
}

TEST(Common, OptionsHaveTheirNames) {
  struct Settings {
    Device device = Device::kAuto;
    Dtype dtype = Dtype::kFloat32;
    int64_t threads = 0;
    int64_t seed = 1;
    std::string out = "results";
    bool json = false;
    void declare(Options& options) {
      device_option(options, device);
      dtype_option(options, dtype);
      threads_option(options, threads);
      seed_option(options, seed);
      out_option(options, out);
      json_option(options, json);
    }
  };
  EXPECT_EQ(describe(Settings{}).names(),
            (std::vector<std::string>{"device", "dtype", "threads", "seed", "out", "json"}));
  const auto settings = from_toml<Settings>("device = 'cuda'\ndtype = 'bf16'\njson = true", "f");
  EXPECT_EQ(settings.device, Device::kCuda);
  EXPECT_EQ(settings.dtype, Dtype::kBfloat16);
  EXPECT_TRUE(settings.json);
  EXPECT_THROW(from_toml<Settings>("seed = -1", "f"), UsageError);
}

}  // namespace
}  // namespace tempera::config
