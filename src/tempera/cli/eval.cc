#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/cli/model.h"
#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/text.h"
#include "tempera/eval/examples.h"
#include "tempera/eval/page.h"
#include "tempera/eval/report.h"
#include "tempera/eval/ruler.h"
#include "tempera/eval/text_task.h"
#include "tempera/generate/answer.h"
#include "tempera/generate/translate.h"
#include "tempera/io/json.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"
#include "tempera/train/context_ranks.h"
#include "tempera/train/data_source.h"
#include "tempera/train/trainer.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct EvalSettings {
  std::string model;
  train::DataOptions data;
  eval::TextTaskOptions text_task;
  generate::BeamOptions beam;
  std::vector<int64_t> sizes;
  int64_t window = 0, stride = 0, max_tokens = 0, rows = 0;
  std::optional<std::string> out;
  models::ComputeOptions compute;
  bool json = false;
  dist::Options ranks;
  int64_t context_ranks = 1;
  bool silent = false;  // another rank says it

  void declare(config::Options& options) {
    options.positional("model", model,
                       "a training run, a checkpoint, a Hugging Face folder or a .gguf file");
    auto tasks = eval::text_task_names();
    std::ranges::copy(eval::ruler_task_names(), std::back_inserter(tasks));
    data.declare_sources(options, tasks);
    text_task.declare(options);
    beam.declare(options);
    options.section(config::Section::kMeasuring);
    options.option("sizes", sizes, config::range(1, 1 << 24),
                   "built-in task: sizes to test; not given: those the run was tested on");
    options.option("window", window, config::range(0, 1 << 30),
                   "text: window length in tokens; 0: the model's context length");
    options.option("stride", stride, config::range(0, 1 << 30),
                   "text: tokens from one window to the next; 0: the window length");
    options.option("eval-tokens", max_tokens, config::range(0, 1e15),
                   "text: most tokens to score; 0: all");
    options.renamed("max-tokens",
                    "--max-tokens bounds what is generated; the tokens of text to score are "
                    "--eval-tokens");
    options.option("rows", rows, config::range(0, 1e9),
                   "held-out data: most rows to score; 0: all");
    options.option("out", out, "new folder for report.html, eval.json, eval.svg and eval.png",
                   {.local = true, .section = config::Section::kOutput});
    compute.declare(options);
    config::cache_dtype_option(options, compute.cache_dtype);
    config::json_option(options, json);
    ranks.declare(options);
    train::TrainOptions::declare_context_ranks(options, context_ranks);
  }
};

using Result = eval::TextTaskResult;

// What the checkpoint says about the data of its run.
struct OwnData {
  train::DataOptions data;
  std::vector<std::string> measured_on = {};  // another text than the one that was trained on
};

OwnData own_data(const OpenModel& opened) {
  const auto file = opened.path / "state.json";
  if (!fs::exists(file))
    throw UsageError(
        "no data given; give a text with --text, or a built-in task such as --task "
        "phonebook");
  const auto state = io::parse_ordered_json(read_file(file, kLargestState), file.string());
  const auto settings = state.value("settings", ordered_json::object());
  ordered_json kept = ordered_json::object();
  for (const char* key : {"text", "held-out", "task", "source", "target", "labelled", "tokenizer"})
    if (settings.contains(key)) kept[key] = settings[key];
  return {config::from_json<train::DataOptions>(kept, file.string()),
          settings.value("eval-text", std::vector<std::string>())};
}

eval::SizeScores score_set(nn::Model& model, const data::Dataset& dataset, size_t set,
                           int64_t rows) {
  const auto& held_out = dataset.held_out_sets().at(set);
  return {held_out.size, rows > 0 ? std::min(rows, held_out.rows) : held_out.rows,
          eval::score_held_out(model, dataset, set, rows)};
}

Result eval_task(nn::Model& model, const train::DataOptions& data, const EvalSettings& settings) {
  std::vector<eval::SizeScores> list;
  const auto limits = data::ModelLimits{.vocabulary = model.config().vocabulary,
                                        .classes = model.config().output_count(),
                                        .max_length = model.config().max_length()};
  if (settings.sizes.empty()) {
    const auto dataset = data::make_generator(*data.task, data.task_options, 0);
    data::check_fits(*dataset, limits);
    for (size_t set = 0; set < dataset->held_out_sets().size(); ++set)
      list.push_back(score_set(model, *dataset, set, settings.rows));
  }
  for (const int64_t size : settings.sizes) {
    const auto dataset = data::make_generator_of_size(*data.task, data.task_options, size);
    data::check_fits(*dataset, limits);
    list.push_back(score_set(model, *dataset, 0, settings.rows));
  }
  return {{{"task", *data.task}, {"sets", eval::to_json(list)}},
          eval::to_text(list),
          eval::to_figure(*data.task, list)};
}

Result eval_files(const OpenModel& opened, const train::DataOptions& data,
                  const EvalSettings& settings) {
  const auto& tokenizer = tokenizer_of(opened);
  const int64_t window = settings.window > 0 ? settings.window : opened.model->config().context;
  const int64_t stride = settings.stride > 0 ? settings.stride : window;
  const std::vector<fs::path> files(data.text.begin(), data.text.end());
  const auto documents = eval::read_documents(files, tokenizer, settings.max_tokens);
  int64_t tokens = 0;
  for (const auto& document : documents) tokens += static_cast<int64_t>(document.size());
  std::optional<Progress> progress;
  if (!settings.silent) progress.emplace("eval", tokens, "tokens");
  const auto scores =
      eval::score_documents(*opened.model, documents, {window, stride}, [&](int64_t done) {
        if (progress) progress->update(done);
        stop_if_interrupted("interrupted: nothing was measured");
      });
  if (progress) progress->finish();
  const double bits = scores.loss * static_cast<double>(scores.tokens) / std::log(2.0);
  const auto bytes = eval::predicted_bytes(documents, tokenizer);
  Result result{eval::to_json(scores), eval::to_text(scores),
                eval::to_figure("Perplexity of " + files.front().filename().string(), scores)};
  result.document["bits_per_byte"] = bits / static_cast<double>(std::max<int64_t>(bytes, 1));
  result.document["window"] = window;
  result.document["stride"] = stride;
  result.document["text"] = data.text;
  return result;
}

Result eval_translations(const OpenModel& opened, const train::DataOptions& data,
                         const EvalSettings& settings) {
  const auto& tokenizer = tokenizer_of(opened);
  std::vector<std::string> sources, references;
  for (size_t i = 0; i < data.source.size(); ++i) {
    std::ranges::move(data::read_lines(data.source[i]), std::back_inserter(sources));
    std::ranges::move(data::read_lines(data.target[i]), std::back_inserter(references));
    TEMPERA_CHECK(sources.size() == references.size(), data.source[i], " and ", data.target[i],
                  " have different numbers of lines");
  }
  Progress progress("translate", static_cast<int64_t>(sources.size()), "sentences");
  std::vector<std::string> texts;
  for (auto& translation : generate::translate(*opened.model, tokenizer, sources, settings.beam,
                                               [&](int64_t done) { progress.update(done); }))
    texts.push_back(std::move(translation.text));
  progress.finish();
  auto result = eval::translation_result(eval::score_translations(texts, references),
                                         settings.text_task.task.seed);
  result.document["beams"] = settings.beam.beams;
  return result;
}

// Files for an encoder or an encoder-decoder.
Result eval_examples(const OpenModel& opened, const train::DataOptions& data,
                     const EvalSettings& settings) {
  if (!data.source.empty()) return eval_translations(opened, data, settings);
  const auto& config = opened.model->config();
  const auto& tokenizer = tokenizer_of(opened);
  if (!data.labelled.empty()) {
    const std::vector<fs::path> files(data.labelled.begin(), data.labelled.end());
    return eval::example_result("classes", eval::score_labelled(*opened.model, tokenizer, files),
                                config.output_count());
  }
  const std::vector<fs::path> files(data.text.begin(), data.text.end());
  const int64_t length = settings.window > 0 ? settings.window : config.context;
  return eval::example_result("hidden tokens",
                              eval::score_hidden(*opened.model, tokenizer, files, length),
                              config.output_count());
}

// The part of its own data that the model never saw.
Result eval_own_data(const OpenModel& opened, const train::DataOptions& data,
                     const EvalSettings& settings) {
  const fs::path shards = fs::weakly_canonical(opened.path).parent_path().parent_path() / "data";
  if (data.has_plain_text() && !fs::exists(shards))
    throw UsageError(concat("the data of the run is not in ", shards.string(),
                            " any more; give a text with --text"));
  const train::DataSource source(data, shards, {}, data.text.empty() ? opened.tokenizer : nullptr);
  const auto& config = opened.model->config();
  const int64_t wanted = settings.window > 0 ? settings.window : config.context;
  const int64_t held_out = source.held_out_tokens();
  const int64_t window = held_out > 0 ? std::min(wanted, held_out) : wanted;
  if (window < wanted)
    std::cerr << "the run held out " << held_out << " tokens: windows of " << window
              << " tokens are measured instead of " << wanted << "\n";
  const auto dataset = source.dataset(window, 0, config.kind);
  Result result;
  if (config.kind == nn::ModelKind::kDecoder) {
    TEMPERA_CHECK(held_out > 0, "the run held nothing out of its data; give other data");
    const auto scores = eval::score_held_out_text(*opened.model, *dataset, settings.rows);
    result = {eval::to_json(scores), eval::to_text(scores),
              eval::to_figure("Perplexity of held-out text", scores)};
  } else {
    TEMPERA_CHECK(!dataset->held_out_sets().empty(),
                  "the run held nothing out of its data; give other data");
    result = eval::example_result("held-out",
                                  eval::score_held_out(*opened.model, *dataset, 0, settings.rows),
                                  config.output_count());
  }
  if (held_out > 0) result.document["window"] = window;
  result.document["text"] = "held-out part of the run's own";
  return result;
}

std::vector<std::vector<int64_t>> prompts_of(std::span<const eval::RulerCase> cases) {
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& one : cases) prompts.emplace_back(one.prompt.begin(), one.prompt.end());
  return prompts;
}

// Answers in the model's own words, some prompts at once.
eval::RulerWriter ruler_writer(const OpenModel& opened) {
  return [&opened](std::span<const eval::RulerCase> cases, int64_t new_tokens, const auto& enough) {
    constexpr size_t kTokensAtOnce = 131'072;  // of keys and values in the caches
    std::vector<std::string> answers;
    for (size_t first = 0; first < cases.size();) {
      const size_t most = std::max<size_t>(1, kTokensAtOnce / cases[first].prompt.size());
      const auto some = cases.subspan(first, std::min(most, cases.size() - first));
      std::ranges::move(
          generate::answers_to(
              *opened.model, tokenizer_of(opened), prompts_of(some), new_tokens,
              [&](size_t index, std::string_view so_far) { return enough(first + index, so_far); }),
          std::back_inserter(answers));
      first += some.size();
    }
    return answers;
  };
}

Result eval_ruler(const OpenModel& opened, const EvalSettings& settings) {
  const auto& given = settings.text_task;
  const std::string& name = *settings.data.task;
  eval::RulerOptions options{.hay = settings.data.text,
                             .lengths = given.task.lengths,
                             .seed = given.task.seed,
                             .samples = given.samples};
  if (given.cases > 0) options.cases = given.cases;
  nn::require_decoder(*opened.model, "a task that is answered in words");
  Progress progress("eval", eval::ruler_cases(name, options), "cases");
  const auto scores = eval::score_ruler(name, tokenizer_of(opened), options, ruler_writer(opened),
                                        [&](int64_t done) { progress.update(done); });
  progress.finish();
  return {eval::to_json(scores), eval::to_text(scores), eval::to_figure(scores)};
}

Result eval_text_task(const OpenModel& opened, const EvalSettings& settings) {
  if (!eval::find_ruler_tasks(*settings.data.task).empty()) return eval_ruler(opened, settings);
  auto options = settings.text_task;
  options.task.hay = settings.data.text;
  std::optional<Progress> progress;
  auto result = eval::run_text_task(*settings.data.task, *opened.model, tokenizer_of(opened),
                                    options, [&](int64_t done, int64_t all) {
                                      if (!progress) progress.emplace("eval", all, "requests");
                                      progress->update(done);
                                    });
  if (progress) progress->finish();
  return result;
}

// A name that both a generator and a text task have means the text where the model reads text.
bool asks_text_task(const OpenModel& opened, const EvalSettings& settings) {
  const auto& task = settings.data.task;
  if (task && !eval::find_ruler_tasks(*task).empty()) return true;
  if (!task || !eval::is_text_task(*task)) return false;
  const bool generated = std::ranges::any_of(
      data::generators(), [&](const auto& entry) { return entry.name == *task; });
  return opened.tokenizer || !generated;
}

void save(const Result& result, NewOutput& out) {
  const InterruptGuard guard;  // all or nothing
  write_file(out.part() / "eval.json", result.document.dump(2) + "\n");
  plot::save(result.figure, out.part() / "eval.svg");
  plot::save(result.figure, out.part() / "eval.png");
  eval::page_of(result.document).save(out.part() / "report.html");
  out.finish();
}

Result evaluate(const OpenModel& opened, const EvalSettings& settings) {
  if (asks_text_task(opened, settings)) return eval_text_task(opened, settings);
  const bool given = settings.data.task || settings.data.has_files();
  const OwnData own = given ? OwnData{settings.data} : own_data(opened);
  train::DataOptions data = own.data;
  // A calibration with --eval-text learned from all of its text.
  if (!own.measured_on.empty()) data.text = own.measured_on;
  if (!data.task && !settings.sizes.empty())
    throw UsageError("--sizes are those of a built-in task; for text, give --window or --lengths");
  data.validate();
  if (data.task) return eval_task(*opened.model, data, settings);
  if (!given && own.measured_on.empty()) return eval_own_data(opened, data, settings);
  const bool decoder = opened.model->config().kind == nn::ModelKind::kDecoder;
  if (decoder && data.text.empty())
    throw UsageError(
        "--source, --target and --labelled are for encoders and encoder-decoders; the model is a "
        "decoder");
  return decoder ? eval_files(opened, data, settings) : eval_examples(opened, data, settings);
}

void print(const Result& result, const EvalSettings& settings, std::optional<NewOutput>& out) {
  if (out) save(result, *out);
  std::cout << (settings.json ? result.document.dump(2) + "\n" : result.text);
}

void run_alone(const EvalSettings& settings) {
  std::optional<NewOutput> out;
  if (settings.out) out.emplace(*settings.out, NewOutput::Kind::kFolder);
  const OpenModel opened =
      open_model(models::load_model(settings.model, load_options(settings.compute)));
  const bool text_task = asks_text_task(opened, settings);
  if (settings.data.task && settings.data.has_files() && !text_task)
    throw UsageError("both --text and --task given; give one of them");
  if (text_task && !settings.sizes.empty())
    throw UsageError("--sizes are those of a built-in task; for text, give --window or --lengths");
  // Built-in tasks of tokens are small, and so is what was held out: they stay where they are made.
  if (text_task || settings.data.has_files())
    opened.model->to(models::resolve_device(settings.compute.device));
  Result result = evaluate(opened, settings);
  result.document["model"] = opened.path.string();
  print(result, settings, out);
}

// Every rank measures the same text, and computes its tokens of every window.
void run_shared(EvalSettings settings, dist::World& world) {
  check_shared_by_all(world.size(), settings.context_ranks);
  settings.silent = !world.is_first();
  std::optional<NewOutput> out;
  if (settings.out && world.is_first()) out.emplace(*settings.out, NewOutput::Kind::kFolder);
  const OpenModel opened =
      open_model(models::load_model(settings.model, load_options(settings.compute)));
  nn::check_context_ranks(opened.model->config(), 0, settings.context_ranks);
  opened.model->to(models::resolve_device(settings.compute.device));
  const train::ContextRanks context(world, *opened.model, settings.context_ranks);
  Result result = eval_files(opened, settings.data, settings);
  result.document["model"] = opened.path.string();
  if (world.is_first()) print(result, settings, out);
}

void run(const EvalSettings& settings) {
  if (settings.ranks.ranks <= 1 && settings.context_ranks == 1) return run_alone(settings);
  if (settings.data.text.empty() || settings.data.task)
    throw UsageError("--ranks share the windows of a text, and none is given; give --text FILE");
  if (settings.compute.cache_dtype != config::CacheDtype::kAuto)
    throw UsageError("--cache-dtype is for one rank: ranks that share a window keep no KV cache");
  // What no rank can do is said once, before they start.
  if (settings.ranks.ranks > 0) check_shared_by_all(settings.ranks.ranks, settings.context_ranks);
  run_in_world(settings.ranks, settings.compute.device,
               [&](dist::World& world) { run_shared(settings, world); });
}

}  // namespace

Verb eval_verb() {
  return make_verb<EvalSettings>(
      "eval", "measures a model on text or on a task",
      {{"tempera eval MODEL --text book.txt", "perplexity, also by position"},
       {"tempera eval MODEL --task passkey --lengths 2048,8192", "retrieval at two lengths"},
       {"tempera eval MODEL --task lambada --file lambada.jsonl --json",
        "a task in lm-eval's format"}},
      run);
}

}  // namespace tempera::cli
