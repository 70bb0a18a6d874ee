#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tempera/config/options.h"

// Settings with every kind of option, for the tests of this folder.
namespace tempera::config {

enum class Colour { kRed, kGreen };

// Two methods that share an option's name with another default, as temperature methods do.
inline std::vector<Declaration> test_method(const std::string& name) {
  if (name == "focal") return {{"t", 0.4, "temperature", above(0)}};
  if (name == "ssa")
    return {{"t", 1.0, "temperature", above(0)},
            {"g", "sigmoid", "form of g", choices({"sigmoid", "linear"})},
            {"keys", false, "scale the keys too"}};
  return {};
}

struct TestTemperature {
  std::string method = "softmax";
  std::vector<int64_t> layers;

  bool operator==(const TestTemperature&) const = default;
  void declare(Options& options) {
    options.option("method", method, choices({"softmax", "focal", "ssa"}), "the method",
                   {.alias = "temperature"});
    options.option("layers", layers, at_least(0), "layers that have it");
  }
};

struct TestSettings {
  std::string model;
  bool fast = false;
  bool causal = true;
  int64_t steps = 1000;
  double rate = 3e-4;
  std::string note = "plain";
  Colour colour = Colour::kRed;
  std::vector<double> betas = {0.9, 0.95};
  std::vector<std::string> stop;
  std::optional<int64_t> window;
  std::optional<std::string> resume;
  std::string out;
  TestTemperature temperature;
  std::map<std::string, Value> method_options;

  bool operator==(const TestSettings&) const = default;
  void declare(Options& options) {
    options.positional("model", model, "the model's folder");
    options.option("fast", fast, "be fast");
    options.option("causal", causal, "see the past only");
    options.option("steps", steps, range(1, 1'000'000'000), "training steps");
    options.option("learning-rate", rate, above_to(0, 10), "learning rate");
    options.option("note", note, "a remark");
    options.option("colour", colour,
                   EnumChoices<Colour>{{{"red", Colour::kRed}, {"green", Colour::kGreen}}},
                   "colour of the report");
    options.option("betas", betas, range(0, 1), "decay rates");
    options.option("stop", stop, "texts that end the output");
    options.option("window", window, at_least(1), "keys a row can see");
    options.option("resume", resume, "checkpoint to go on from");
    options.option("out", out, "folder for the results", {.local = true});
    options.group("temperature", temperature);
    options.declared("temperature", test_method(temperature.method), method_options);
    for (const char* other : {"focal", "ssa"})
      if (temperature.method != other)
        options.elsewhere("temperature", test_method(other),
                          std::string("with --temperature ") + other);
  }
};

}  // namespace tempera::config
