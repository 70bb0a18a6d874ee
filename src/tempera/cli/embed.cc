#include "tempera/models/embed.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/data/text.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;

struct EmbedSettings {
  std::string model;
  std::optional<std::string> text;
  std::string pooling = "auto";
  std::optional<bool> normalise;
  int64_t length = 0;
  int64_t batch = 32;
  nn::TemperatureConfig temperature;
  models::ComputeOptions compute;
  bool lines = false;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file");
    options.section(config::Section::kData);
    options.option("text", text, "file with one text per line; not given: standard input");
    options.section(config::Section::kModel);
    options.option(
        "pooling", pooling, config::choices({"auto", "mean", "cls", "none"}),
        "mean of the token vectors, the first token's (cls), or none: a vector per token; "
        "auto: as the model's files say, otherwise mean");
    options.option(
        "normalise", normalise,
        "scale vectors to length 1; not given: as the model's files say, otherwise true");
    options.option("length", length, config::range(0, 1e9),
                   "longest text in tokens, the rest is cut off; 0: as the model's files say");
    options.option("batch", batch, config::range(1, 65536), "texts per forward pass");
    temperature.declare(options, Origin::kLoaded);
    compute.declare(options);
    options.option("lines", lines, "print one JSON line per text",
                   {.section = config::Section::kOutput});
    config::json_option(options, json);
  }
};

std::vector<std::string> read_texts(const EmbedSettings& settings) {
  const std::string all = settings.text ? read_file(*settings.text, kLargestText)
                                        : std::string(std::istreambuf_iterator<char>(std::cin),
                                                      std::istreambuf_iterator<char>());
  auto texts = data::lines_of(all);
  std::erase(texts, "");
  const std::string from = settings.text.value_or("standard input");
  TEMPERA_CHECK(!texts.empty(), from, " has no text; one a line is expected");
  return texts;
}

models::EmbedOptions options_of(const EmbedSettings& settings, const models::LoadedModel& loaded) {
  auto options = models::embed_options_of(loaded);
  if (settings.pooling == "none") options.pooling = std::nullopt;
  if (settings.pooling == "mean") options.pooling = nn::Pooling::kMean;
  if (settings.pooling == "cls") options.pooling = nn::Pooling::kFirst;
  if (settings.normalise) options.normalise = *settings.normalise;
  const int64_t most = loaded.model->config().max_length();
  if (most > 0 && settings.length > most)
    throw UsageError(
        concat("--length: ", settings.length, " given; the model reads at most ", most, " tokens"));
  if (settings.length > 0) options.length = settings.length;
  options.batch = settings.batch;
  return options;
}

std::vector<float> numbers(const torch::Tensor& row) {
  const float* values = row.const_data_ptr<float>();
  return {values, values + row.numel()};
}

// The ids stand beside vectors of their own.
ordered_json item(const std::string& text, const models::Embeddings& found, size_t i) {
  const auto& vectors = found.vectors[i];
  ordered_json result{{"text", text}, {"tokens", found.ids[i].size()}};
  if (vectors.dim() == 1) {
    result["embedding"] = numbers(vectors);
    return result;
  }
  result["ids"] = found.ids[i];
  result["embedding"] = ordered_json::array();
  for (const auto& row : vectors.unbind()) result["embedding"].push_back(numbers(row));
  return result;
}

// What a text holds need not be UTF-8.
std::string dump(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

void print_row(const torch::Tensor& row) {
  constexpr int64_t kShown = 4;
  std::cout << std::fixed << std::setprecision(4) << std::setw(10) << row.norm().item<double>()
            << " ";
  for (int64_t column = 0; column < std::min(kShown, row.size(0)); ++column)
    std::cout << std::setw(9) << row[column].item<double>();
}

void print_table(const std::vector<std::string>& texts, const models::Embeddings& found) {
  constexpr size_t kText = 40;
  const bool by_token = found.vectors.front().dim() == 2;
  std::cout << std::right << std::setw(6) << "text" << std::setw(8) << (by_token ? "id" : "tokens")
            << std::setw(10) << "length"
            << "  first numbers\n";
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& vectors = found.vectors[i];
    const auto begin = [&](int64_t number) {
      std::cout << std::setw(6) << i + 1 << std::setw(8) << number;
    };
    if (!by_token) {
      begin(static_cast<int64_t>(found.ids[i].size()));
      print_row(vectors);
      std::cout << "  " << texts[i].substr(0, kText) << "\n";
      continue;
    }
    for (size_t token = 0; token < found.ids[i].size(); ++token) {
      begin(found.ids[i][token]);
      print_row(vectors[static_cast<int64_t>(token)]);
      std::cout << "\n";
    }
  }
}

const char* pooling_name(const std::optional<nn::Pooling>& pooling) {
  if (!pooling) return "none";
  return *pooling == nn::Pooling::kMean ? "mean" : "cls";
}

void run(const EmbedSettings& settings) {
  if (settings.lines && settings.json) throw UsageError("give one of --lines and --json");
  auto load = load_options(settings.compute);
  load.temperature = load_options(settings.temperature).temperature;
  const auto loaded = models::load_model(settings.model, load);
  const OpenModel opened = open_model(loaded, settings.compute.device);
  const auto options = options_of(settings, loaded);
  const auto texts = read_texts(settings);
  const auto found = models::embed(*opened.model, tokenizer_of(opened), texts, options);
  if (found.cut > 0)
    std::cerr << found.cut << " of " << texts.size() << " texts were longer than " << options.length
              << " tokens and were cut\n";
  if (settings.lines) {
    for (size_t i = 0; i < texts.size(); ++i)
      std::cout << dump(item(texts[i], found, i), -1) << "\n";
  } else if (settings.json) {
    ordered_json list = ordered_json::array();
    for (size_t i = 0; i < texts.size(); ++i) list.push_back(item(texts[i], found, i));
    const ordered_json result{{"model", opened.path.string()},
                              {"pooling", pooling_name(options.pooling)},
                              {"normalised", options.normalise},
                              {"width", found.vectors.front().size(-1)},
                              {"texts", std::move(list)}};
    std::cout << dump(result, 1) << "\n";
  } else {
    print_table(texts, found);
  }
}

}  // namespace

Verb embed_verb() {
  return make_verb<EmbedSettings>(
      "embed", "turns texts into vectors",
      {{"tempera embed MODEL --text lines.txt --lines > vectors.jsonl",
        "a vector per line of a file"},
       {"echo 'a text' | tempera embed MODEL --json", "from standard input"}},
      run);
}

}  // namespace tempera::cli
