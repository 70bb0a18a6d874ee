#include <filesystem>
#include <iostream>

#include "tempera/adapt/learn.h"
#include "tempera/base/interrupt.h"
#include "tempera/cli/model.h"
#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/chat_dataset.h"
#include "tempera/models/classifier.h"
#include "tempera/models/device.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"
#include "tempera/plot/chart.h"

namespace tempera::cli {
namespace {

namespace fs = std::filesystem;
using train::RunFolder;

enum class Trained { kAll, kTemperature, kLora };

constexpr int64_t kDefaultLength = 512;

struct FinetuneSettings {
  std::string model;
  std::vector<std::string> chat;
  train::DataOptions data;
  Trained update = Trained::kAll;
  nn::TemperatureConfig temperature;
  nn::LoraConfig lora{.rank = 8, .alpha = 16};
  int64_t length = 0;
  train::TrainOptions training;
  RunOptions place{.out = "finetuned"};
  dist::Options ranks;

  FinetuneSettings() {
    training.steps = 200;
    training.batch = 8;
    training.optimizer.learning_rate = 2e-4;
    training.optimizer.decay = 0.01;
    training.schedule.warmup = 10;
  }

  void declare(config::Options& options) {
    static const config::EnumChoices<Trained> kTrained{
        {{"all", Trained::kAll}, {"temperature", Trained::kTemperature}, {"lora", Trained::kLora}}};
    options.positional("model", model, "a folder or a .gguf file; it is never written to");
    options.section(config::Section::kData);
    options.option("text", data.text, "text to train on: text or jsonl files, or token shards");
    options.option("chat", chat,
                   "conversations to train on: jsonl files with \"messages\"; the loss counts the "
                   "assistant's turns alone");
    data.declare_examples(options);
    options.option("held-out", data.held_out, config::range(0, 0.9),
                   "share of the data held out for validation");
    temperature.declare(options, Origin::kLoaded);
    options.section(config::Section::kTraining);
    options.option("update", update, kTrained,
                   "what to train: all weights, the temperature alone, or LoRA adapters (and the "
                   "temperature)");
    options.group("lora", lora);
    options.option("length", length, config::range(0, 1 << 30),
                   "row length in tokens; 0: 512, or the context length if that is less");
    training.declare(options);
    place.declare(options);
    ranks.declare(options);
    training.declare_ranks(options);
  }
};

// As far as it does not depend on the model.
void check_rows(const FinetuneSettings& settings, int64_t ranks) {
  const nn::ModelConfig any;
  train::TrainOptions training = settings.training;
  training.row_length = settings.length;
  const auto stages = train::plan_stages(training, any);
  train::check_ranks(stages, ranks, training.context_ranks);
  if (settings.data.text.empty() || (settings.length == 0 && training.stages.empty())) return;
  for (const auto& stage : stages)
    nn::check_context_ranks(any, stage.length, training.context_ranks);
}

void check(const FinetuneSettings& settings) {
  if (!settings.data.has_files() && settings.chat.empty())
    throw UsageError(concat("no data given; give text, or conversations:\n  tempera finetune ",
                            settings.model, " --text FILE\n  tempera finetune ", settings.model,
                            " --chat FILE.jsonl"));
  if (settings.data.has_files() && !settings.chat.empty())
    throw UsageError("both --text and --chat given; give one of them");
  if (settings.update == Trained::kTemperature && settings.temperature.method == "softmax")
    throw UsageError(
        "--update temperature given, and no temperature; give one, such as --temperature ssa");
  if (settings.update == Trained::kLora && settings.lora.rank == 0)
    throw UsageError("--lora.rank: 0 given with --update lora; 1 or more expected");
  train::check_stages(settings.training, settings.data);
  settings.training.validate();
  // Before ranks start: one error is enough.
  if (settings.ranks.ranks > 0) check_rows(settings, settings.ranks.ranks);
}

models::LoadedModel load(const FinetuneSettings& settings) {
  models::LoadOptions options = load_options(settings.temperature);
  if (settings.update == Trained::kLora) options.lora = settings.lora;
  auto loaded = models::load_model(settings.model, options);
  if (options.lora)
    nn::initialize_adapters(*loaded.model, static_cast<uint64_t>(settings.training.seed));
  return loaded;
}

std::vector<nn::NamedParameter> what_changes(nn::Model& model, const FinetuneSettings& settings) {
  auto learned = adapt::freeze_others(model, [&](const nn::NamedParameter& parameter) {
    const bool temperature = parameter.kind == nn::ParameterKind::kTemperature;
    // A new head knows nothing yet.
    if (!settings.data.labelled.empty() && parameter.name.starts_with("classifier.")) return true;
    if (settings.update == Trained::kTemperature) return temperature;
    if (settings.update == Trained::kLora)
      return temperature || parameter.kind == nn::ParameterKind::kAdapter;
    return true;
  });
  if (settings.update != Trained::kAll)
    model.round_frozen(models::scalar_type(settings.training.dtype));
  return learned;
}

// folder: of the first rank, which prepares the data.
train::DataForStage open_files(const FinetuneSettings& settings, const RunFolder* folder,
                               const OpenModel& opened) {
  const auto source = std::make_shared<train::DataSource>(
      folder ? open_data(settings.data, *folder, opened.tokenizer)
             : train::read_first_data(settings.data, settings.place.out, opened.tokenizer));
  const auto seed = static_cast<uint64_t>(settings.training.seed);
  return [source, seed, kind = opened.model->config().kind](size_t stage, int64_t length) {
    return source->dataset(length, seed + stage, kind);
  };
}

train::DataForStage open_chats(const FinetuneSettings& settings, const models::LoadedModel& loaded,
                               const text::Tokenizer& tokenizer) {
  const auto form = models::chat_template_of(loaded);
  TEMPERA_CHECK(form, loaded.path.string(),
                " has no chat template, so conversations have no form; give --text");
  const std::vector<fs::path> files(settings.chat.begin(), settings.chat.end());
  const auto conversations = std::make_shared<const std::vector<data::Conversation>>(
      data::read_conversations(files, *form, tokenizer));
  const data::TextOptions options{.length = 0,
                                  .seed = static_cast<uint64_t>(settings.training.seed),
                                  .held_out = settings.data.held_out};
  return [conversations, options, name = settings.chat.front(),
          vocabulary = tokenizer.vocabulary()](size_t, int64_t length) {
    auto own = options;
    own.length = length;
    return std::make_shared<data::ChatDataset>(name, *conversations, vocabulary, own);
  };
}

// The rows have the length asked for, whatever the model could take.
train::TrainOptions with_length(const FinetuneSettings& settings, const nn::ModelConfig& model) {
  train::TrainOptions options = settings.training;
  if (!options.stages.empty()) return options;
  const int64_t length =
      settings.length > 0 ? settings.length : std::min(kDefaultLength, model.context);
  if (model.max_length() > 0 && length > model.max_length())
    throw UsageError(
        concat("--length: ", length, " given, the model has positions for ", model.max_length()));
  options.row_length = length;
  return options;
}

// What one of the ranks does, or the only process. The folder is the first rank's.
void finetune(const FinetuneSettings& settings, dist::World& world) {
  // Before the first rank makes a folder.
  check_rows(settings, world.size());
  std::optional<RunFolder> folder;
  if (world.is_first()) {
    folder.emplace(settings.place.out, "finetune");
    open_run(*folder, settings, settings.place.resume);
  }
  auto loaded = load(settings);
  const auto opened = open_model(loaded);
  tokenizer_of(opened);
  train::DataForStage data;
  const auto open = [&] {
    data = settings.chat.empty() ? open_files(settings, folder ? &*folder : nullptr, opened)
                                 : open_chats(settings, loaded, *opened.tokenizer);
  };
  world.first(open);
  if (!folder) open();
  const auto training = with_length(settings, loaded.model->config());
  if (!settings.data.text.empty())
    for (const auto& stage : train::plan_stages(training, loaded.model->config()))
      nn::check_context_ranks(loaded.model->config(), stage.length, training.context_ranks);
  if (!settings.data.labelled.empty())
    loaded.model = models::with_classifier(*loaded.model, data(0, training.row_length)->classes(),
                                           static_cast<uint64_t>(settings.training.seed));
  const auto learned = what_changes(*loaded.model, settings);
  RunDisplay display("finetune");
  train::Trainer trainer(training, loaded.model, data,
                         folder ? display.events(*folder) : rank_events(world),
                         models::stored_tokenizer(loaded), learned);
  trainer.join(world);
  folder ? trainer.attach(*folder, settings.place.tensorboard) : trainer.attach_to_first();
  if (folder) display.keep_report(*folder);
  const train::TrainResult result = display.run(trainer);
  if (!folder) return;
  const auto figure = train::figure_of_run(folder->path());
  for (const char* name : {"finetune.svg", "finetune.png"})
    plot::save(figure, folder->path() / name);
  print_run(result, settings.place.out, trainer.model(), settings.place.json);
}

void run(const FinetuneSettings& settings) {
  check(settings);
  models::use_threads(settings.place.threads);
  run_in_world(settings.ranks, settings.training.device,
               [&](dist::World& world) { finetune(settings, world); });
}

}  // namespace

Verb finetune_verb() {
  return make_verb<FinetuneSettings>(
      "finetune", "trains an existing model further: all weights, its temperature, or LoRA",
      {{"tempera finetune MODEL --text book.txt --temperature ssa",
        "all weights, with a temperature added"},
       {"tempera finetune MODEL --text book.txt --temperature ssa --update temperature",
        "the new numbers alone"},
       {"tempera finetune MODEL --chat conversations.jsonl --update lora",
        "LoRA on conversations"}},
      run);
}

}  // namespace tempera::cli
