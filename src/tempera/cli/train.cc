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
#include "tempera/cli/forecast.h"
#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"
#include "tempera/train/data_source.h"
#include "tempera/train/forecast.h"
#include "tempera/train/plan.h"
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

struct TrainSettings {
  train::DataOptions data;
  nn::ModelConfig model;
  train::TrainOptions training;
  RunOptions place{.out = "run"};
  dist::Options ranks;
  train::Cluster cluster;
  bool plan = false;
  bool complete = false;  // the defaults that depend on the data have been filled in

  void declare(config::Options& options) {
    data.declare(options);
    if (!complete) {
      model = data.task ? task_model() : text_model();
      // Data with answers has one kind of model that it suits.
      if (!data.source.empty()) model.kind = nn::ModelKind::kEncoderDecoder;
      if (!data.labelled.empty()) model.kind = nn::ModelKind::kEncoder;
      if (data.task)
        training = train::task_training();
      else
        training.optimizer.learning_rate = data.text.empty() ? 1e-3 : 3e-3;
      complete = true;
    }
    model.declare(options);
    training.declare(options);
    place.declare(options);
    ranks.declare(options);
    training.declare_ranks(options);
    options.option("plan", plan,
                   "print memory and time for every --shard on --ranks GPUs; trains nothing",
                   {.once = true, .section = config::Section::kComputing});
    cluster.declare(options);
  }
};

void check(const TrainSettings& settings) {
  settings.data.validate();
  settings.training.validate();
  train::check_stages(settings.training, settings.data);
  const auto stages = train::plan_stages(settings.training, settings.model);
  // Before ranks start: one error is enough.
  if (settings.ranks.ranks > 0)
    train::check_ranks(stages, settings.ranks.ranks, settings.training.context_ranks);
  // Rows of other data have lengths of their own, and are filled up.
  for (const auto& stage : stages)
    nn::check_context_ranks(settings.model, settings.data.text.empty() ? 0 : stage.length,
                            settings.training.context_ranks);
}

// What the data and the stages say about the model.
nn::ModelConfig complete_model(const TrainSettings& settings, const train::DataSource& source) {
  nn::ModelConfig model = settings.model;
  model.context = std::max(model.context, train::longest_stage(settings.training));
  const auto dataset = source.dataset(model.context, 0, model.kind);
  source.complete(model, *dataset);
  if (model.position != nn::PositionKind::kLearned)
    model.context = std::max(model.context, dataset->train_length());
  model.validate();
  return model;
}

// Weights, gradients and two moments of 4 bytes each; a model that cannot fit is refused before
// memory is asked for.
void check_memory(const nn::ModelConfig& model) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double needed = 16 * train::matrix_elements(model);
  const double there = real(::sysconf(_SC_PHYS_PAGES)) * real(::sysconf(_SC_PAGESIZE));
  if (there > 0 && needed > there)
    throw UsageError(concat("the model needs at least ", quantity_text(needed),
                            " bytes for its weights and their training, this machine has ",
                            quantity_text(there),
                            "; make it smaller with --width, --layers or --model.mlp-size"));
}

// What one of the ranks does, or the only process. The folder is the first rank's.
void train(const TrainSettings& settings, dist::World& world) {
  // Before the first rank makes a folder, and the others look for what is in it.
  const auto stages = train::plan_stages(settings.training, settings.model);
  train::check_ranks(stages, world.size(), settings.training.context_ranks);
  std::optional<RunFolder> folder;
  std::optional<train::DataSource> source;
  world.first([&] {
    folder.emplace(settings.place.out, "train");
    open_run(*folder, settings, settings.place.resume);
    source.emplace(open_data(settings.data, *folder));
  });
  if (!folder) source.emplace(train::read_first_data(settings.data, settings.place.out));
  const nn::ModelConfig config = complete_model(settings, *source);
  check_memory(config);

  RunDisplay display;
  const auto seed = static_cast<uint64_t>(settings.training.seed);
  train::Trainer trainer(
      settings.training, nn::make_model(config, seed),
      [&](size_t stage, int64_t length) {
        return source->dataset(length, seed + stage, config.kind);
      },
      folder ? display.events(*folder) : rank_events(world), source->tokenizer());
  trainer.join(world);
  folder ? trainer.attach(*folder, settings.place.tensorboard) : trainer.attach_to_first();
  if (folder) display.keep_report(*folder);
  const train::TrainResult result = display.run(trainer);
  if (folder) print_run(result, settings.place.out, trainer.model(), settings.place.json);
}

// No data is read.
void plan(const TrainSettings& settings) {
  settings.training.validate();
  if (settings.model.vocabulary == 0)
    throw UsageError(
        "--plan reads no data; give the number of tokens, such as --model.vocabulary 32000");
  nn::ModelConfig model = settings.model;
  model.context = std::max(model.context, train::longest_stage(settings.training));
  model.validate();
  train::Cluster cluster = settings.cluster;
  cluster.ranks = std::max<int64_t>(settings.ranks.ranks, 1);
  print_forecast(model, settings.training, cluster, settings.place.json);
}

void run(const TrainSettings& settings) {
  if (settings.plan) return plan(settings);
  check(settings);
  models::use_threads(settings.place.threads);
  run_in_world(settings.ranks, settings.training.device,
               [&](dist::World& world) { train(settings, world); });
}

}  // namespace

Verb train_verb() {
  return make_verb<TrainSettings>(
      "train", "trains a model from scratch on text, pairs, labels or a built-in task",
      {{"tempera train --text book.txt", "a small decoder on bytes; the run is in ./run"},
       {"tempera train --text corpus.jsonl --tokenizer tokenizer.json --temperature ssa --layers 6 "
        "--width 384 --context 512",
        "a larger one with a temperature"},
       {"tempera train --config run/run.toml", "continue a run"},
       {"tempera train --plan --ranks 8 --model.vocabulary 32000 --layers 32 --width 4096 "
        "--heads 32 --context 4096 --batch 256 --micro-batch 1 --dtype bf16",
        "what a 7B model needs on 8 GPUs; nothing is started"}},
      run);
}

}  // namespace tempera::cli
