#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/train/data_source.h"
#include "tempera/train/trainer.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;
using train::RunFolder;

// A model of text that learns something within minutes on a few cores.
nn::ModelConfig text_model() {
  nn::ModelConfig model;
  model.layers = 4;
  model.width = 192;
  model.heads = 6;
  model.context = 128;
  return model;
}

// The shape that findings on the built-in tasks refer to; the data says how many tokens there are.
nn::ModelConfig task_model() {
  nn::ModelConfig model = nn::phonebook_model();
  model.vocabulary = 0;
  model.outputs = 0;
  return model;
}

struct Settings {
  train::DataOptions data;
  nn::ModelConfig model;
  train::TrainOptions training;
  std::string out = "run";
  bool resume = true;
  int64_t threads = 0;
  bool json = false;
  bool complete = false;  // the defaults that depend on the data have been filled in

  void declare(config::Options& options) {
    data.declare(options);
    if (!complete) {
      model = data.task ? task_model() : text_model();
      if (data.task)
        training = train::task_training();
      else
        training.optimizer.learning_rate = 3e-3;
      complete = true;
    }
    model.declare(options);
    training.declare(options);
    config::out_option(options, out);
    options.option("resume", resume, "continue the run in the folder if there is one",
                   {.local = true});
    config::threads_option(options, threads);
    config::json_option(options, json);
  }
};

void check(const Settings& settings) {
  settings.data.validate();
  settings.training.validate();
  if (settings.data.task && !settings.training.stages.empty())
    throw UsageError("--stages need text; a built-in task has lengths of its own");
}

// Begins a run, or makes sure that the one in the folder is the same.
void open_run(RunFolder& folder, const Settings& settings) {
  const config::Options given = config::describe(settings);
  if (!folder.settings()) {
    folder.begin(config::to_json(given), config::dump_toml(given));
    return;
  }
  const std::string& out = settings.out;
  if (!settings.resume)
    throw UsageError(concat("'", out,
                            "' holds a run, and --resume=false given; give another "
                            "folder with --out, or remove this one"));
  const auto stored = config::describe(
      config::from_json<Settings>(*folder.settings(), (folder.path() / "run.json").string()));
  const auto differences = config::differences(given, stored);
  if (!differences.empty())
    throw UsageError(concat("'", out, "' holds a run with other settings:\n",
                            config::to_text(differences),
                            "give the settings of the run to continue it (tempera train --config ",
                            out, "/run.toml), or another folder with --out"));
}

train::DataSource open_data(const Settings& settings, const RunFolder& folder) {
  int64_t total = 0;
  for (const auto& path : settings.data.text) {
    std::error_code missing;  // reported by the conversion, with advice
    const auto size = std::filesystem::file_size(path, missing);
    total += missing ? 0 : static_cast<int64_t>(size);
  }
  Progress progress("tokenize", total, "bytes");
  return {settings.data, folder.data_path(), [&](int64_t bytes) {
            progress.update(bytes);
            if (const int signal = InterruptGuard::signal())
              throw Interrupted(signal,
                                "interrupted before the training began: nothing was written; run "
                                "the same command again");
          }};
}

// What the data and the stages say about the model.
nn::ModelConfig complete_model(const Settings& settings, const train::DataSource& source) {
  nn::ModelConfig model = settings.model;
  for (const auto& stage : settings.training.stage_list())
    model.context = std::max(model.context, stage.length);
  const auto dataset = source.dataset(model.context, 0);
  if (model.vocabulary == 0) model.vocabulary = dataset->vocabulary();
  if (model.outputs == 0 && settings.data.task) model.outputs = dataset->classes();
  if (model.position != nn::PositionKind::kLearned)
    model.context = std::max(model.context, dataset->train_length());
  model.validate();
  return model;
}

// Weights, gradients and two moments of 4 bytes each; a model that cannot fit is refused before
// memory is asked for.
void check_memory(const nn::ModelConfig& model) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double width = real(model.width);
  const double layer =
      width * real(model.size_of_head()) * real(2 * model.heads + 2 * model.kv_head_count()) +
      2 * width * real(model.size_of_mlp());
  const double tables =
      width * real(model.vocabulary + (model.tied_embeddings ? 0 : model.output_count()));
  const double needed = 16 * (real(model.layers) * layer + tables);
  const double there = real(::sysconf(_SC_PHYS_PAGES)) * real(::sysconf(_SC_PAGESIZE));
  if (there > 0 && needed > there)
    throw UsageError(concat("the model needs at least ", quantity_text(needed),
                            " bytes for its weights and their training, this machine has ",
                            quantity_text(there),
                            "; make it smaller with --width, --layers or --model.mlp-size"));
}

std::string continue_command(const RunFolder& folder) {
  const std::string file = (folder.path() / "run.toml").string();
  const bool plain = file.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~!{}") == std::string::npos;
  std::string quoted;
  for (const char c : file) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "tempera train --config " + (plain ? file : "'" + quoted + "'");
}

std::string rounded(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// One line for the whole training.
class Display {
 public:
  void step(const train::StepReport& report) {
    const bool counted = report.steps > 0;
    const int64_t done =
        counted ? report.step : static_cast<int64_t>(std::lround(100 * report.progress));
    if (!progress_) {
      progress_.emplace("train", counted ? report.steps : 100, "tokens");
      if (counted) progress_->start_at(report.step - 1);
      tokens_before_ = report.tokens;
    }
    progress_->update(done, report.tokens - tokens_before_,
                      "loss " + rounded(report.loss, "%.4f") + validation_);
  }
  void validation(const train::Validation& result) {
    validation_ = "  validation " + rounded(result.loss, "%.4f");
  }
  void finish() {
    if (progress_) progress_->finish();
  }

 private:
  std::optional<Progress> progress_;
  int64_t tokens_before_ = 0;
  std::string validation_;
};

ordered_json to_json(const train::TrainResult& result, const Settings& settings, nn::Model& model) {
  ordered_json json{{"out", settings.out},
                    {"steps", result.step},
                    {"resumed_from", result.first_step},
                    {"tokens", result.tokens},
                    {"seconds", result.seconds},
                    {"parameters", model.parameter_count()},
                    {"temperature", model.config().temperature.method},
                    {"temperature_parameters", model.temperature_parameter_count()},
                    {"loss", result.loss},
                    {"validation", nullptr},
                    {"best", nullptr}};
  if (result.validation)
    json["validation"] = {{"loss", result.validation->loss},
                          {"perplexity", result.validation->perplexity},
                          {"targets", result.validation->targets}};
  if (result.best)
    json["best"] = {{"step", result.best->step}, {"validation_loss", result.best->loss}};
  return json;
}

void print(const train::TrainResult& result, const Settings& settings, nn::Model& model) {
  if (settings.json) {
    std::cout << to_json(result, settings, model).dump(2) << "\n";
    return;
  }
  const auto line = [](const char* name) -> std::ostream& {
    return std::cout << std::left << std::setw(14) << name;
  };
  line("steps") << result.step << ", " << quantity_text(static_cast<double>(result.tokens))
                << " tokens in " << duration_text(result.seconds) << "\n";
  line("parameters") << model.parameter_count() << ", of these "
                     << model.temperature_parameter_count() << " of the temperature ("
                     << model.config().temperature.method << ")\n";
  if (result.step > result.first_step) line("loss") << rounded(result.loss, "%.4f") << "\n";
  if (result.validation)
    line("validation") << rounded(result.validation->loss, "%.4f") << ", perplexity "
                       << rounded(result.validation->perplexity, "%.2f") << "\n";
  if (result.best)
    line("best") << rounded(result.best->loss, "%.4f") << " at step " << result.best->step << "\n";
  const std::filesystem::path out = settings.out;
  line("model") << (out / (result.best ? "best" : "last")).string() << "\n";
}

void run(const Settings& settings) {
  check(settings);
  if (settings.threads > 0) at::set_num_threads(static_cast<int>(settings.threads));
  const InterruptGuard guard;
  RunFolder folder(settings.out);
  open_run(folder, settings);
  const train::DataSource source = open_data(settings, folder);
  const nn::ModelConfig config = complete_model(settings, source);
  check_memory(config);

  Display display;
  const auto seed = static_cast<uint64_t>(settings.training.seed);
  train::TrainEvents events;
  events.on_step = [&](const train::StepReport& report) { display.step(report); };
  events.on_validation = [&](int64_t, const train::Validation& result) {
    display.validation(result);
  };
  events.say = [](std::string_view text) { std::cerr << text << "\n"; };
  events.signal = InterruptGuard::signal;
  events.command = continue_command(folder);
  train::Trainer trainer(
      settings.training, nn::make_model(config, seed),
      [&](size_t stage, int64_t length) { return source.dataset(length, seed + stage); }, events,
      source.tokenizer());
  trainer.attach(folder);
  const train::TrainResult result = trainer.run();
  display.finish();
  print(result, settings, trainer.model());
}

}  // namespace

Verb train_verb() {
  return make_verb<Settings>("train", "trains a model from scratch on text or a built-in task",
                             run);
}

}  // namespace tempera::cli
