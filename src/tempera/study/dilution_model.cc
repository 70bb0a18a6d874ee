#include "tempera/study/dilution_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tempera/base/error.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/base/version.h"
#include "tempera/eval/perplexity.h"
#include "tempera/models/load.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"
#include "tempera/study/pool.h"
#include "tempera/study/tables.h"

namespace tempera::study {
namespace {

namespace fs = std::filesystem;

// So many rows before a length stand for it.
constexpr int64_t kRowsOfLength = 16;
constexpr int64_t kShortest = 32;

std::vector<int64_t> lengths_up_to(int64_t window) {
  std::vector<int64_t> lengths;
  for (int64_t length = kShortest; length < window; length *= 2) lengths.push_back(length);
  lengths.push_back(window);
  return lengths;
}

// The windows (1, window) of the text, at most `count`, none across two documents.
std::vector<torch::Tensor> text_windows(const models::LoadedModel& loaded,
                                        const ModelDilutionSettings& settings, int64_t window) {
  const auto tokenizer = models::tokenizer_of(loaded);
  TEMPERA_CHECK(tokenizer, loaded.path.string(), ": the model has no tokenizer and reads no text");
  const std::vector<fs::path> files(settings.text.begin(), settings.text.end());
  const auto documents = eval::read_documents(files, *tokenizer, 4 * settings.windows * window);
  std::vector<torch::Tensor> windows;
  for (const auto& document : documents)
    for (size_t first = 0; first + static_cast<size_t>(window) <= document.size() &&
                           static_cast<int64_t>(windows.size()) < settings.windows;
         first += static_cast<size_t>(window)) {
      const auto begin = document.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<int64_t> tokens(begin, begin + window);
      windows.push_back(torch::tensor(tokens).unsqueeze(0));
    }
  if (windows.empty())
    throw UsageError(concat("no document of the text has ", window,
                            " tokens; give a longer text, or a smaller --window"));
  return windows;
}

// What one model did: sums over heads and the rows that stand for a length, window by window.
struct Measured {
  std::vector<std::vector<double>> entropy;       // (lengths, windows): mean of all layers
  std::vector<std::vector<double>> first_weight;  // on the first token
  std::vector<std::vector<double>> layers;        // (layers, lengths): entropy, mean of the windows
};

void add_window(nn::Model& model, const torch::Tensor& tokens, const std::vector<int64_t>& lengths,
                double share, Measured& measured) {
  std::vector<int64_t> rows;
  for (const int64_t length : lengths)
    for (int64_t row = length - kRowsOfLength; row < length; ++row) rows.push_back(row);
  const auto wanted = torch::tensor(rows).unsqueeze(0);
  nn::Batch batch;
  batch.tokens = tokens.to(model.output_weight().device());
  const auto layers = model.inspect(batch, wanted, torch::zeros_like(wanted));
  measured.layers.resize(layers.size(), std::vector<double>(lengths.size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto mean = [&](const torch::Tensor& pairs) {
      return pairs.narrow(2, static_cast<int64_t>(i) * kRowsOfLength, kRowsOfLength)
          .mean()
          .item<double>();
    };
    double entropy = 0, weight = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const double here = mean(layers[layer].entropy);
      measured.layers[layer][i] += share * here;
      entropy += here;
      weight += mean(layers[layer].weight);
    }
    const auto count = static_cast<double>(layers.size());
    measured.entropy[i].push_back(entropy / count);
    measured.first_weight[i].push_back(weight / count);
  }
}

struct ModelDilution {
  Metric entropy;                           // by tokens seen; over the windows
  Metric share;                             // of the largest entropy, ln n
  Metric first_weight;                      // on the first token
  std::vector<std::vector<double>> layers;  // (layers, lengths): entropy

  static void fields(auto& self, auto&& field) {
    field("entropy", self.entropy);
    field("share", self.share);
    field("first_weight", self.first_weight);
    field("layers", self.layers);
  }
};

struct DilutionSettings {
  std::string model;
  Json against;  // null: none
  std::vector<std::string> text;
  int64_t window = 0;

  static void fields(auto& self, auto&& field) {
    field("model", self.model);
    field("against", self.against);
    field("text", self.text);
    field("window", self.window);
  }
};

struct DilutionResults {
  std::string tempera;
  std::string study;
  int64_t windows = 0;
  DilutionSettings settings;
  ByName<ModelDilution> models;

  static void fields(auto& self, auto&& field) {
    field("tempera", self.tempera);
    field("study", self.study);
    field("windows", self.windows);
    field("settings", self.settings);
    field("results", self.models);
  }
};

ModelDilution summarise(Measured measured, const std::vector<int64_t>& lengths) {
  ModelDilution result;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string key = std::to_string(lengths[i]);
    auto share = measured.entropy[i];
    for (double& value : share) value /= std::log(static_cast<double>(lengths[i]));
    result.entropy.push_back({key, study::summarise(measured.entropy[i])});
    result.share.push_back({key, study::summarise(std::move(share))});
    result.first_weight.push_back({key, study::summarise(measured.first_weight[i])});
  }
  result.layers = std::move(measured.layers);
  return result;
}

ModelDilution measure_model(nn::Model& model, const std::vector<torch::Tensor>& windows,
                            const std::vector<int64_t>& lengths, Progress& progress,
                            int64_t& done) {
  const torch::NoGradGuard no_grad;
  model.eval();
  Measured measured{.entropy = std::vector<std::vector<double>>(lengths.size()),
                    .first_weight = std::vector<std::vector<double>>(lengths.size()),
                    .layers = {}};
  for (const auto& window : windows) {
    add_window(model, window, lengths, 1 / static_cast<double>(windows.size()), measured);
    progress.update(++done);
  }
  return summarise(std::move(measured), lengths);
}

plot::HeatMap layer_map(const std::vector<std::vector<double>>& layers,
                        const std::vector<std::string>& lengths, const std::string& title) {
  plot::HeatMap map{.title = title,
                    .x_label = "tokens seen",
                    .y_label = "layer",
                    .rows = layers.size(),
                    .columns = lengths.size(),
                    .column_labels = lengths,
                    .scale_label = "nats"};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    map.row_labels.push_back(std::to_string(layer));
    map.values.insert(map.values.end(), layers[layer].begin(), layers[layer].end());
  }
  return map;
}

plot::LineChart length_chart(const MethodMetrics& models, const std::string& title, plot::Axis y) {
  auto chart = metric_chart(
      models, {.title = title, .x = {.label = "tokens seen", .log = true}, .y = std::move(y)});
  // A few windows say nothing about an interval.
  for (auto& series : chart.series) series.low = series.high = {};
  return chart;
}

plot::Figure model_figure(const ByName<ModelDilution>& models) {
  const auto entropies = metric_of(models, &ModelDilution::entropy);
  const auto lengths = sizes_of(entropies);
  auto entropy = length_chart(entropies, "Entropy of attention, mean of layers and heads",
                              {.label = "nats", .min = 0});
  plot::Series uniform{.name = "all tokens alike", .dashed = true, .color = plot::kMuted};
  for (const auto& length : lengths) {
    uniform.x.push_back(std::stod(length));
    uniform.y.push_back(std::log(std::stod(length)));
  }
  entropy.series.push_back(std::move(uniform));
  plot::Figure made{.title = "", .panels = {}, .columns = 2};
  made.panels.emplace_back(std::move(entropy));
  made.panels.emplace_back(length_chart(metric_of(models, &ModelDilution::first_weight),
                                        "Weight on the first token",
                                        {.label = "weight", .min = 0}));
  const auto before =
      layer_map(models[0].value.layers, lengths, "Entropy by layer: " + models[0].name);
  made.panels.emplace_back(before);
  if (models.size() > 1) {
    auto map = layer_map(models[1].value.layers, lengths, "Change by layer: " + models[1].name);
    double most = 0;
    for (size_t i = 0; i < map.values.size(); ++i) {
      map.values[i] -= before.values[i];
      most = std::max(most, std::abs(map.values[i]));
    }
    map.scale = plot::ColorScale::kDiverging;
    map.min = -most;
    map.max = most;
    made.panels.emplace_back(std::move(map));
  }
  return made;
}

// Of the first length and the last, as a share of what equal weights have.
std::string entropy_sentence(const ByName<ModelDilution>& models) {
  std::string text;
  for (const auto& [name, measured] : models) {
    TEMPERA_CHECK(!measured.share.empty(), name, ": no length was measured");
    const auto &first = measured.share.front(), &last = measured.share.back();
    text += concat(text.empty() ? "" : " ", name, ": ", fixed(100 * first.value.mean, 0),
                   " % of the largest entropy at ", first.name, " tokens seen, ",
                   fixed(100 * last.value.mean, 0), " % at ", last.name, ".");
  }
  return text;
}

plot::HtmlReport model_page(const DilutionResults& results) {
  const auto& models = results.models;
  plot::HtmlReport report("How the attention of a model thins out");
  report.summary(
      {.asked = concat("How flat does the attention of ", models.front().name,
                       models.size() > 1 ? concat(" and ", models[1].name) : std::string(),
                       " become as the context grows?"),
       .answer = entropy_sentence(models),
       .not_shown = {
           "single heads, of which some stay sharp at any length: `tempera lens` shows them",
           "whether the model finds less because of it: `tempera eval --task passkey`"}});
  report.paragraph(
      "The entropy of the attention rows at the end of a context, by its length: the mean of all "
      "layers, heads and 16 rows a length, with the standard deviation over the windows.");
  report.figure(model_figure(models),
                "The dashed line is the entropy of equal weights on all tokens.");
  report.table(metric_table(models, &ModelDilution::entropy, "Entropy in nats, by tokens seen", 3));
  report.table(
      metric_table(models, &ModelDilution::share, "Entropy as a share of its largest, ln n", 3));
  report.table(metric_table(models, &ModelDilution::first_weight, "Weight on the first token", 3));
  say_how_made(report, results.tempera, as_json(results.settings), "tempera study dilution MODEL");
  return report;
}

// What tells two models apart in a legend.
std::string name_of(const std::string& path, const std::string& other) {
  const auto last = [](const std::string& text) {
    const fs::path given = fs::path(text).lexically_normal();
    return (given.has_filename() ? given.filename() : given.parent_path().filename()).string();
  };
  return last(path) == last(other) ? path : last(path);
}

}  // namespace

void ModelDilutionSettings::declare(config::Options& options) {
  options.option("text", text, "text for the model to read: text or jsonl files, or token shards");
  options.option("against", against,
                 "a second model to compare with, such as the first after `calibrate`");
  options.option("window", window, config::range(0, 1 << 24),
                 "window length in tokens; 0: the model's context length");
  options.option("windows", windows, config::range(1, 1 << 20), "most windows to read");
  compute.declare(options);
  config::out_option(options, out);
  config::json_option(options, json);
}

plot::HtmlReport report_of_model_dilution(const fs::path& file) {
  const auto results = read_result<DilutionResults>(file);
  TEMPERA_CHECK(!results.models.empty(), file.string(), " has no model");
  return model_page(results);
}

StudyReport model_dilution(const std::string& model, const ModelDilutionSettings& settings) {
  if (settings.text.empty()) throw UsageError("no text given; give a file with --text");
  if (settings.against && *settings.against == model)
    throw UsageError("--against names the model itself; give another one");
  NewOutput out(settings.out, NewOutput::Kind::kFolder);
  models::use_threads(settings.compute.threads);
  const auto device = models::resolve_device(settings.compute.device);
  const auto dtype = models::scalar_type(settings.compute.dtype);
  std::vector<std::string> paths = {model};
  if (settings.against) paths.push_back(*settings.against);
  ByName<ModelDilution> found;
  std::vector<torch::Tensor> windows;
  std::vector<int64_t> lengths;
  std::optional<Progress> progress;
  int64_t done = 0;
  for (const auto& path : paths) {
    const auto loaded = models::load_model(path, {.dtype = dtype});
    loaded.model->to(device);
    TEMPERA_CHECK(loaded.model->config().kind == nn::ModelKind::kDecoder, path,
                  ": rows of a decoder see more and more tokens, those of this model all at once; "
                  "give a decoder");
    if (windows.empty()) {
      const int64_t window = settings.window > 0 ? settings.window : loaded.model->config().context;
      if (window < kShortest)
        throw UsageError(concat("--window ", window, " given; at least ", kShortest, " expected"));
      windows = text_windows(loaded, settings, window);
      lengths = lengths_up_to(window);
      progress.emplace("dilution", static_cast<int64_t>(windows.size() * paths.size()), "windows");
    }
    TEMPERA_CHECK(windows[0].max().item<int64_t>() < loaded.model->config().vocabulary, path,
                  ": the model has another vocabulary than ", model);
    entry(found, name_of(path, path == model ? settings.against.value_or("") : model)) =
        measure_model(*loaded.model, windows, lengths, *progress, done);
  }
  progress->finish();
  const DilutionResults results{
      .tempera = std::string(version()),
      .study = "dilution",
      .windows = static_cast<int64_t>(windows.size()),
      .settings = {.model = model,
                   .against = settings.against ? Json(*settings.against) : Json(),
                   .text = settings.text,
                   .window = lengths.back()},
      .models = std::move(found)};
  const Json document = as_json(results);
  write_study(out.part(), document, model_figure(results.models), model_page(results));
  out.finish();
  return {
      document,
      concat("entropy of attention, nats, mean ± sd of ", windows.size(),
             " windows, by tokens seen\n", metric_text(results.models, &ModelDilution::entropy, 3),
             "\nas a share of ln n\n", metric_text(results.models, &ModelDilution::share, 3),
             "\nweight on the first token\n",
             metric_text(results.models, &ModelDilution::first_weight, 3)),
      settings.out};
}

}  // namespace tempera::study
