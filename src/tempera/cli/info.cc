#include <algorithm>
#include <array>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/base/files.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/io/json.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kProbe = 256;  // tokens of the sequence whose temperatures are shown

struct InfoSettings {
  std::string model;
  nn::TemperatureConfig temperature;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file");
    temperature.declare(options, Origin::kLoaded);
    config::json_option(options, json);
  }
};

// How the run stands that wrote the checkpoint; null without one.
ordered_json training_state(const std::filesystem::path& folder) {
  const auto file = folder / "state.json";
  if (!std::filesystem::exists(file)) return nullptr;
  const auto state = io::parse_ordered_json(read_file(file, kLargestState), file.string());
  ordered_json kept;
  for (const char* key :
       {"step", "tokens", "seconds", "best", "seed", "threads", "program", "torch"})
    if (state.contains(key)) kept[key] = state[key];
  const auto settings = state.value("settings", ordered_json::object());
  for (const char* key : {"text", "task", "steps", "batch", "learning-rate", "optimizer"})
    if (settings.contains(key)) kept["settings"][key] = settings[key];
  return kept;
}

// The mean scale of every head; empty: 1 for all.
using HeadScales = std::vector<double>;

HeadScales scales_of(const torch::Tensor& scale) {
  if (!scale.defined()) return {};
  const auto values = scale.to(torch::kCPU, torch::kFloat64).contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

struct LayerInfo {
  int64_t layer = 0;
  std::string attention;
  std::vector<std::string> methods;
  int64_t parameters = 0;
  HeadScales q, k, v;
};

// The temperatures of a model at work.
struct TemperatureInfo {
  int64_t tokens = 0;
  std::vector<LayerInfo> layers;
};

const char* attention_name(AttentionKind kind) {
  return kind == AttentionKind::kCausal    ? "causal"
         : kind == AttentionKind::kEncoder ? "bidirectional"
                                           : "cross";
}

// The mean scale of every layer and head over a sequence of random tokens: what a method has
// learned can only be seen at work.
TemperatureInfo temperatures(nn::Model& model) {
  const auto& config = model.config();
  const int64_t most = config.max_length() > 0 ? config.max_length() : kProbe;
  nn::Batch batch;
  batch.tokens = torch::randint(config.vocabulary, {1, std::min({most, kProbe, config.context})},
                                torch::kInt64);
  if (config.kind == nn::ModelKind::kEncoderDecoder) batch.source = batch.tokens;
  const auto place = torch::zeros({1, 1}, torch::kInt64);
  const auto layers = model.inspect(batch, place, place);
  const auto methods = model.methods();
  TemperatureInfo info{.tokens = batch.tokens.numel(), .layers = {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& shape = methods[i]->shape();
    LayerInfo& layer =
        info.layers.emplace_back(LayerInfo{.layer = shape.layer,
                                           .attention = attention_name(shape.kind),
                                           .methods = {},
                                           .parameters = methods[i]->parameter_count(),
                                           .q = scales_of(layers[i].a_q),
                                           .k = scales_of(layers[i].a_k),
                                           .v = scales_of(layers[i].a_v)});
    for (const auto& spec : methods[i]->specs()) layer.methods.push_back(spec.name);
  }
  return info;
}

ordered_json to_json(const TemperatureInfo& info) {
  const auto heads = [](const HeadScales& scales) {
    return scales.empty() ? ordered_json() : ordered_json(scales);
  };
  ordered_json list = ordered_json::array();
  for (const LayerInfo& layer : info.layers)
    list.push_back({{"layer", layer.layer},
                    {"attention", layer.attention},
                    {"methods", layer.methods},
                    {"parameters", layer.parameters},
                    {"q", heads(layer.q)},
                    {"k", heads(layer.k)},
                    {"v", heads(layer.v)}});
  return {{"tokens", info.tokens}, {"layers", std::move(list)}};
}

double temperature_share(nn::Model& model) {
  return static_cast<double>(model.temperature_parameter_count()) /
         static_cast<double>(model.parameter_count());
}

ordered_json describe(const OpenModel& opened) {
  nn::Model& model = *opened.model;
  const auto& config = model.config();
  ordered_json kinds;
  for (const auto& parameter : model.parameter_list()) {
    static constexpr std::array kNames = {"matrices", "embeddings", "vectors", "temperature",
                                          "adapters"};
    auto& sum = kinds[kNames.at(static_cast<size_t>(parameter.kind))];
    sum = sum.is_null() ? parameter.tensor.numel() : sum.get<int64_t>() + parameter.tensor.numel();
  }
  ordered_json tokenizer = nullptr;
  if (opened.tokenizer)
    tokenizer = {{"name", opened.tokenizer->name()},
                 {"vocabulary", opened.tokenizer->vocabulary()}};
  return {{"path", opened.path.string()},
          {"parameters", model.parameter_count()},
          {"parameters_by_kind", kinds},
          {"temperature_parameters", model.temperature_parameter_count()},
          {"temperature_share", temperature_share(model)},
          {"config", config::to_json(config::describe(config))},
          {"tokenizer", std::move(tokenizer)},
          {"temperatures", to_json(temperatures(model))},
          {"training", training_state(opened.path)}};
}

// As the option has it.
std::string kind_name(const nn::ModelConfig& config) {
  return config::to_json(config::describe(config))["model"]["kind"];
}

std::string range_text(const HeadScales& heads) {
  if (heads.empty()) return "";
  const auto [low, high] = std::ranges::minmax(heads);
  return fixed(low, 3) + (high > low ? " to " + fixed(high, 3) : "");
}

void print(const TemperatureInfo& info) {
  std::cout << "\nMean scales over " << info.tokens
            << " random tokens, smallest to largest head (1: plain attention)\n";
  std::cout << std::left << std::setw(7) << "layer" << std::setw(15) << "attention" << std::setw(20)
            << "method";
  for (const char* side : {"a_q", "a_k", "a_v"}) std::cout << std::setw(18) << side;
  std::cout << "\n";
  for (const LayerInfo& layer : info.layers) {
    std::string names;
    for (const auto& name : layer.methods) names += (names.empty() ? "" : "+") + name;
    std::cout << std::setw(7) << layer.layer << std::setw(15) << layer.attention << std::setw(20)
              << names;
    for (const auto* side : {&layer.q, &layer.k, &layer.v})
      std::cout << std::setw(18) << range_text(*side);
    std::cout << "\n";
  }
}

void print(const OpenModel& opened) {
  const auto line = [](const char* name) -> std::ostream& {
    return std::cout << std::left << std::setw(14) << name;
  };
  nn::Model& model = *opened.model;
  const auto& config = model.config();
  line("model") << opened.path.string() << "\n";
  line("kind") << kind_name(config) << "\n";
  line("shape") << config.layers << " layers, " << config.width << " wide, " << config.heads
                << " heads, context " << config.context << ", vocabulary " << config.vocabulary
                << "\n";
  line("parameters") << model.parameter_count() << " ("
                     << quantity_text(static_cast<double>(model.parameter_count())) << ")\n";
  line("temperature") << config.temperature.method << ", " << model.temperature_parameter_count()
                      << " parameters (" << std::setprecision(3) << 100 * temperature_share(model)
                      << " %)\n";
  line("tokenizer") << (opened.tokenizer ? opened.tokenizer->name() : "none: a built-in task")
                    << "\n";
  if (const auto training = training_state(opened.path); !training.is_null()) {
    line("trained") << training.at("step") << " steps, "
                    << quantity_text(training.at("tokens").get<double>()) << " tokens in "
                    << duration_text(training.at("seconds").get<double>());
    if (training.contains("best") && training.at("best").is_object())
      std::cout << ", best validation loss " << std::setprecision(4)
                << training.at("best").at("loss").get<double>();
    std::cout << "\n";
  }
  print(temperatures(model));
}

void run(const InfoSettings& settings) {
  torch::manual_seed(0);
  const OpenModel opened =
      open_model(models::load_model(settings.model, load_options(settings.temperature)));
  if (settings.json)
    std::cout << describe(opened).dump(2) << "\n";
  else
    print(opened);
}

}  // namespace

Verb info_verb() {
  return make_verb<InfoSettings>(
      "info", "describes a model",
      {{"tempera info MODEL", "family, shape, parameters, temperature"},
       {"tempera info MODEL --temperature ssa", "and what a temperature would add"}},
      run);
}

}  // namespace tempera::cli
