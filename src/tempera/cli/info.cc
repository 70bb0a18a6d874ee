#include <algorithm>
#include <array>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/files.h"
#include "tempera/base/progress.h"
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
  const std::string text = read_file(file, kLargestState);
  io::parse_json(text, file.string());
  const auto state = ordered_json::parse(text);
  ordered_json kept;
  for (const char* key :
       {"step", "tokens", "seconds", "best", "seed", "threads", "program", "torch"})
    if (state.contains(key)) kept[key] = state[key];
  const auto settings = state.value("settings", ordered_json::object());
  for (const char* key : {"text", "task", "steps", "batch", "learning-rate", "optimizer"})
    if (settings.contains(key)) kept["settings"][key] = settings[key];
  return kept;
}

ordered_json heads_json(const torch::Tensor& scale) {
  if (!scale.defined()) return nullptr;
  const auto values = scale.to(torch::kCPU, torch::kFloat64).contiguous();
  return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
}

const char* attention_name(AttentionKind kind) {
  return kind == AttentionKind::kCausal    ? "causal"
         : kind == AttentionKind::kEncoder ? "bidirectional"
                                           : "cross";
}

// The mean scale of every layer and head over a sequence of random tokens: what a method has
// learned can only be seen at work.
ordered_json temperatures(nn::Model& model) {
  const auto& config = model.config();
  const int64_t most = config.max_length() > 0 ? config.max_length() : kProbe;
  nn::Batch batch;
  batch.tokens = torch::randint(config.vocabulary, {1, std::min({most, kProbe, config.context})},
                                torch::kInt64);
  if (config.kind == nn::ModelKind::kEncoderDecoder) batch.source = batch.tokens;
  const auto place = torch::zeros({1, 1}, torch::kInt64);
  const auto layers = model.inspect(batch, place, place);
  const auto methods = model.methods();
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < layers.size(); ++i) {
    ordered_json names = ordered_json::array();
    for (const auto& spec : methods[i]->specs()) names.push_back(spec.name);
    const auto& shape = methods[i]->shape();
    list.push_back({{"layer", shape.layer},
                    {"attention", attention_name(shape.kind)},
                    {"methods", std::move(names)},
                    {"parameters", methods[i]->parameter_count()},
                    {"q", heads_json(layers[i].a_q)},
                    {"k", heads_json(layers[i].a_k)},
                    {"v", heads_json(layers[i].a_v)}});
  }
  return {{"tokens", batch.tokens.numel()}, {"layers", std::move(list)}};
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
  const auto total = model.parameter_count(), own = model.temperature_parameter_count();
  ordered_json tokenizer = nullptr;
  if (opened.tokenizer)
    tokenizer = {{"name", opened.tokenizer->name()},
                 {"vocabulary", opened.tokenizer->vocabulary()}};
  return {{"path", opened.path.string()},
          {"parameters", total},
          {"parameters_by_kind", kinds},
          {"temperature_parameters", own},
          {"temperature_share", static_cast<double>(own) / static_cast<double>(total)},
          {"config", config::to_json(config::describe(config))},
          {"tokenizer", std::move(tokenizer)},
          {"temperatures", temperatures(model)},
          {"training", training_state(opened.path)}};
}

std::string range_text(const ordered_json& heads) {
  if (heads.is_null()) return "";
  const auto values = heads.get<std::vector<double>>();
  const auto [low, high] = std::ranges::minmax(values);
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << low;
  if (high > low) text << " to " << high;
  return text.str();
}

void print(const ordered_json& info) {
  const auto line = [](const char* name) -> std::ostream& {
    return std::cout << std::left << std::setw(14) << name;
  };
  const auto& model = info.at("config").at("model");
  line("model") << info.at("path").get<std::string>() << "\n";
  line("kind") << model.at("kind").get<std::string>() << "\n";
  line("shape") << model.at("layers") << " layers, " << model.at("width") << " wide, "
                << model.at("heads") << " heads, context " << model.at("context") << ", vocabulary "
                << model.at("vocabulary") << "\n";
  line("parameters") << info.at("parameters") << " ("
                     << quantity_text(info.at("parameters").get<double>()) << ")\n";
  line("temperature") << info.at("config").at("temperature").at("method").get<std::string>() << ", "
                      << info.at("temperature_parameters") << " parameters ("
                      << std::setprecision(3) << 100 * info.at("temperature_share").get<double>()
                      << " %)\n";
  line("tokenizer") << (info.at("tokenizer").is_null()
                            ? "none: a built-in task"
                            : info.at("tokenizer").at("name").get<std::string>())
                    << "\n";
  if (const auto& training = info.at("training"); !training.is_null()) {
    line("trained") << training.at("step") << " steps, "
                    << quantity_text(training.at("tokens").get<double>()) << " tokens in "
                    << duration_text(training.at("seconds").get<double>());
    if (training.contains("best") && training.at("best").is_object())
      std::cout << ", best validation loss " << std::setprecision(4)
                << training.at("best").at("loss").get<double>();
    std::cout << "\n";
  }
  const auto& probe = info.at("temperatures");
  std::cout << "\nMean scales over " << probe.at("tokens")
            << " random tokens, smallest to largest head (1: plain attention)\n";
  std::cout << std::left << std::setw(7) << "layer" << std::setw(15) << "attention" << std::setw(20)
            << "method";
  for (const char* side : {"a_q", "a_k", "a_v"}) std::cout << std::setw(18) << side;
  std::cout << "\n";
  for (const auto& layer : probe.at("layers")) {
    std::string names;
    for (const auto& name : layer.at("methods"))
      names += (names.empty() ? "" : "+") + name.get<std::string>();
    std::cout << std::setw(7) << layer.at("layer").get<int64_t>() << std::setw(15)
              << layer.at("attention").get<std::string>() << std::setw(20) << names;
    for (const char* side : {"q", "k", "v"})
      std::cout << std::setw(18) << range_text(layer.at(side));
    std::cout << "\n";
  }
}

void run(const InfoSettings& settings) {
  torch::manual_seed(0);
  const ordered_json info =
      describe(open_model(models::load_model(settings.model, load_options(settings.temperature))));
  if (settings.json)
    std::cout << info.dump(2) << "\n";
  else
    print(info);
}

}  // namespace

Verb info_verb() {
  return make_verb<InfoSettings>(
      "info", "shows what a model is",
      {{"tempera info MODEL", "family, shape, parameters, temperature"},
       {"tempera info MODEL --temperature ssa", "and what a temperature would add"}},
      run);
}

}  // namespace tempera::cli
