#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "tempera/adapt/estimate.h"
#include "tempera/adapt/learn.h"
#include "tempera/adapt/measure.h"
#include "tempera/adapt/report.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/cli/model.h"
#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/eval/held_out.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using train::RunFolder;

constexpr uint64_t kLargestMeasures = 64U << 20;
// The question and the number alone have more than a hundred tokens.
constexpr int64_t kShortestHay = 512;
// Rows that one pass of training sees at most on a CPU, whose caches are small; a GPU wants more.
constexpr int64_t kTokensOfPass = 2048, kTokensOfGpuPass = 16384;
// Bytes for the backward pass above which it is computed again instead of kept.
constexpr int64_t kMostKept = 2'000'000'000;

// What it makes in the folder beside what every training does.
const std::vector<std::string> kFiles = {"measures",        "controls",        "calibration.json",
                                         "calibration.svg", "calibration.png", "report.html"};

struct CalibrateSettings {
  std::string model;
  std::vector<std::string> text, eval_text;
  double held_out = 0.05;
  std::string learn = "head,value,norm";
  int64_t context = 0;
  double rope_base = 0;
  int64_t length = 0;
  int64_t tokens = 500'000;
  int64_t step_tokens = 16'384;
  double learning_rate = 3e-3;
  double temperature_rate = 10;
  std::vector<int64_t> eval_lengths;
  int64_t eval_tokens = 65'536;
  int64_t passkey_cases = 2;
  std::vector<std::string> passkey_text;
  bool controls = false;
  int64_t seed = 0;
  config::Dtype dtype = config::Dtype::kFloat32;
  config::Device device = config::Device::kAuto;
  RunOptions place{.out = "calibrated"};
  bool fresh = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file; it is never written to");
    options.section(config::Section::kData);
    options.option("text", text, "text to learn from: text or jsonl files, or token shards");
    options.option("eval-text", eval_text,
                   "text to measure on; not given: a held-out part of --text");
    options.option("held-out", held_out, config::range(0, 0.9),
                   "share of --text held out for measuring; without --eval-text");
    options.section(config::Section::kTemperature);
    options.option("learn", learn,
                   "what to learn: temperature methods (NAME, A+B or NAME:OPTION=VALUE) and norm "
                   "(the gains of the norms); all other weights stay frozen");
    options.option(
        "context", context, config::range(0, 1 << 30),
        "extend the context to this many tokens with a larger RoPE base; 0: the model's own");
    options.option("rope-base", rope_base, config::range(0, 1e12),
                   "with --context: the RoPE base; 0: the model's times (new context / old)^2");
    declare_training(options);
    declare_measuring(options);
    place.declare(options);
    config::fresh_option(options, fresh);
  }

 private:
  void declare_training(config::Options& options) {
    options.section(config::Section::kTraining);
    options.option("tokens", tokens, config::range(1, 1e15), "tokens to learn from");
    options.option("length", length, config::range(0, 1 << 30),
                   "window length in tokens; 0: the context length, as in use");
    options.option("step-tokens", step_tokens, config::range(1, 1e12), "tokens per step",
                   {.rare = true});
    options.option("learning-rate", learning_rate, config::above_to(0, 100),
                   "peak learning rate of norm gains", {.rare = true});
    options.option("temperature-rate", temperature_rate, config::range(0, 1e6),
                   "multiplies the learning rate of the temperature parameters", {.rare = true});
    config::seed_option(options, seed);
    config::dtype_option(options, dtype);
    config::device_option(options, device);
  }

  void declare_measuring(config::Options& options) {
    options.section(config::Section::kMeasuring);
    options.option("eval-lengths", eval_lengths, config::range(2, 1 << 30),
                   "window lengths to measure at; not given: up to 2048, the trained and the new "
                   "context length");
    options.option("eval-tokens", eval_tokens, config::range(2, 1e15),
                   "tokens to measure per length");
    options.option("passkey-cases", passkey_cases, config::range(0, 1e6),
                   "passkeys per length and depth; 0: none");
    options.option("passkey-text", passkey_text,
                   "text to hide passkeys in; not given: built-in sentences");
    options.option("controls", controls,
                   "also measure the scaled positions alone, and norm gains alone");
  }
};

// What all models of one calibration share.
struct Job {
  const CalibrateSettings& settings;
  RunFolder& folder;
  models::LoadedModel original;  // as it is
  std::shared_ptr<const text::Tokenizer> tokenizer;
  torch::Device device;
  torch::ScalarType type;
  int64_t trained = 0, context = 0, length = 0;
  int64_t held_out = 0;  // tokens of the text that are measured on; 0: another text is
  std::vector<std::string> warnings = {};
};

void warn(Job& job, const std::string& line) {
  std::cerr << "warning: " << line << "\n";
  job.warnings.push_back(line);
}

void check(const CalibrateSettings& settings) {
  if (settings.text.empty())
    throw UsageError(
        concat("no text to learn from; give some that is like the text of use:\n"
               "  tempera calibrate ",
               settings.model, " --text FILE"));
  if (settings.rope_base > 0 && settings.context == 0)
    throw UsageError("--rope-base is for --context; give the length that you want too");
  adapt::parse_learn(settings.learn);
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  if (fs::equivalent(a, b, missing)) return true;
  if (missing || fs::file_size(a, missing) != fs::file_size(b, missing) || missing) return false;
  const MappedFile left(a), right(b);
  return std::ranges::equal(left.bytes(), right.bytes());
}

void check_texts(Job& job) {
  for (const auto& text : job.settings.text)
    for (const auto& held_out : job.settings.eval_text)
      if (same_file(text, held_out))
        warn(job, concat("'", held_out,
                         "' is the text that is learned from, too: what is measured "
                         "on it says nothing about other text"));
}

Job open_job(const CalibrateSettings& settings, RunFolder& folder) {
  Job job{.settings = settings,
          .folder = folder,
          .original = models::load_model(settings.model),
          .tokenizer = nullptr,
          .device = train::resolve_device(settings.device),
          .type = settings.dtype == config::Dtype::kBfloat16 ? torch::kBFloat16 : torch::kFloat32};
  const auto opened = open_model(job.original);
  nn::require_decoder(*opened.model, "calibrating");
  tokenizer_of(opened);
  job.tokenizer = opened.tokenizer;
  const auto& config = job.original.model->config();
  if (config.temperature.method != "softmax")
    throw UsageError(concat("the model has the temperature '", config.temperature.method,
                            "' already; fold it into the weights first (tempera export --fold)"));
  job.trained = config.context;
  job.context = settings.context > 0 ? settings.context : config.context;
  job.length = settings.length > 0 ? settings.length : job.context;
  if (job.length > job.context)
    throw UsageError(concat("--length: ", job.length, " given, the context is ", job.context,
                            "; give --context to stretch it"));
  if (job.length < job.context)
    warn(job, concat("windows of ", job.length, " tokens are shorter than the context of ",
                     job.context, ": positions beyond may get worse"));
  check_texts(job);
  return job;
}

// The model with what is to be learned, everything else frozen, on the device.
struct Prepared {
  std::shared_ptr<nn::Model> model;
  std::vector<nn::NamedParameter> learned;
};

Prepared prepare(const Job& job, const adapt::Learn& learn, bool stretched) {
  models::LoadOptions options;
  if (learn.temperature)
    options.temperature =
        adapt::suited_temperature(*learn.temperature, job.original.model->config(),
                                  [](const std::string& line) { std::cerr << line << "\n"; });
  Prepared prepared{models::load_model(job.settings.model, options).model, {}};
  if (stretched && job.settings.context > 0)
    adapt::extend_context(*prepared.model, job.context, job.settings.rope_base);
  prepared.learned = adapt::freeze_others(*prepared.model, [&](const nn::NamedParameter& p) {
    return p.kind == nn::ParameterKind::kTemperature || (learn.norm && adapt::is_norm_gain(p));
  });
  prepared.model->round_frozen(job.type);
  prepared.model->to(job.device);
  return prepared;
}

train::TrainOptions training_options(const Job& job) {
  const CalibrateSettings& settings = job.settings;
  const auto& config = job.original.model->config();
  train::TrainOptions options;
  options.row_length = job.length;
  options.batch = std::max<int64_t>(1, settings.step_tokens / job.length);
  const int64_t tokens = options.batch * job.length;
  options.steps = (settings.tokens + tokens - 1) / tokens;
  // On the CPU a pass has as many rows as its memory may hold; activations are computed twice only
  // where one row is too much.
  const int64_t kept = 4 * config.layers * (8 * config.width + 3 * config.size_of_mlp());
  const int64_t most =
      job.device.is_cuda() ? kTokensOfGpuPass : std::min(kTokensOfPass, kMostKept / kept);
  options.micro_batch = std::clamp<int64_t>(most / job.length, 1, options.batch);
  options.recompute = job.device.is_cpu() && job.length > kMostKept / kept;
  options.seed = settings.seed;
  options.dtype = settings.dtype;
  options.device = settings.device;
  options.optimizer.learning_rate = settings.learning_rate;
  options.optimizer.temperature_rate = settings.temperature_rate;
  options.optimizer.beta2 = 0.99;
  options.optimizer.decay = 0;
  options.optimizer.clip = 0;
  options.schedule.warmup =
      std::max<int64_t>(1, std::lround(0.05 * static_cast<double>(options.steps)));
  options.eval_every = 0;
  options.eval_rows = 0;
  options.save_every = 20;
  options.log_every = 1;
  options.keep = 1;
  return options;
}

struct Learned {
  std::shared_ptr<nn::Model> model;
  int64_t numbers = 0;
  train::TrainResult result;
};

Learned learn_in(const Job& job, const std::string& what, RunFolder& folder,
                 const train::DataSource& source) {
  auto prepared = prepare(job, adapt::parse_learn(what), /*stretched=*/true);
  Learned learned{.model = prepared.model, .numbers = 0, .result = {}};
  for (const auto& parameter : prepared.learned) learned.numbers += parameter.tensor.numel();
  RunDisplay display(what);
  const auto seed = static_cast<uint64_t>(job.settings.seed);
  train::Trainer trainer(
      training_options(job), prepared.model,
      [&](size_t, int64_t length) { return source.dataset(length, seed); },
      display.events(job.folder), models::stored_tokenizer(job.original), prepared.learned);
  trainer.attach(folder);
  learned.result = trainer.run();
  display.finish();
  return learned;
}

std::set<int64_t> lengths_to_measure(const Job& job) {
  const auto& given = job.settings.eval_lengths;
  if (!given.empty()) return {given.begin(), given.end()};
  return {std::min<int64_t>(2048, job.length), std::min(job.trained, job.length), job.length};
}

// Of perplexity: no window is longer than the text that is there.
std::vector<int64_t> windows_to_measure(const Job& job) {
  std::set<int64_t> windows;
  for (const int64_t length : lengths_to_measure(job))
    windows.insert(job.held_out > 0 ? std::min(length, job.held_out) : length);
  return {windows.begin(), windows.end()};
}

void set_held_out(Job& job, const train::DataSource& source) {
  if (!job.settings.eval_text.empty()) return;
  job.held_out = source.held_out_tokens();
  if (job.held_out > 0 && *lengths_to_measure(job).rbegin() > job.held_out)
    warn(job, concat("the held-out part of the text has ", job.held_out,
                     " tokens: no longer windows are measured; for those, give more text, a larger "
                     "--held-out or --eval-text"));
}

adapt::HeldOutText held_out_text(const Job& job, const train::DataSource& source) {
  adapt::HeldOutText text;
  if (job.settings.eval_text.empty()) {
    text.own = [&source](int64_t length) { return source.dataset(length, 0); };
    return text;
  }
  const std::vector<fs::path> files(job.settings.eval_text.begin(), job.settings.eval_text.end());
  text.documents = eval::read_documents(files, *job.tokenizer, job.settings.eval_tokens);
  return text;
}

adapt::MeasureOptions measure_options(const Job& job) {
  adapt::MeasureOptions options{
      .lengths = windows_to_measure(job), .tokens = job.settings.eval_tokens, .passkey = {}};
  options.passkey.hay = job.settings.passkey_text;
  options.passkey.lengths.clear();
  for (const int64_t length : lengths_to_measure(job))
    if (length >= kShortestHay) options.passkey.lengths.push_back(length);
  options.passkey.cases = options.passkey.lengths.empty() ? 0 : job.settings.passkey_cases;
  return options;
}

fs::path measures_file(const Job& job, const std::string& name) {
  return job.folder.path() / "measures" / (name + ".json");
}

// Measured once: an interrupted run finds it again.
ordered_json measured(const Job& job, const std::string& name, const adapt::HeldOutText& text,
                      const std::function<std::shared_ptr<nn::Model>()>& model) {
  const fs::path file = measures_file(job, name);
  if (fs::exists(file)) {
    std::cerr << "measure " << name << ": finished before; --fresh measures it again\n";
    return ordered_json::parse(read_file(file, kLargestMeasures));
  }
  const auto options = measure_options(job);
  const int64_t most = adapt::tokens_of(adapt::windows_of(options));
  Progress progress("measure " + name, most, "tokens");
  const auto result = adapt::measure(*model(), *job.tokenizer, text, options, [&](int64_t tokens) {
    progress.update(tokens);
    if (const int signal = InterruptGuard::signal())
      throw Interrupted(signal, concat("interrupted while measuring; what is finished is saved. To "
                                       "go on:\n  ",
                                       continue_command(job.folder)));
  });
  progress.update(most);  // a short text has fewer
  progress.finish();
  fs::create_directories(file.parent_path());
  write_file(file, result.dump(2) + "\n");
  return result;
}

// What the temperature itself did not do.
void measure_controls(const Job& job, const train::DataSource& source,
                      const adapt::HeldOutText& text, ordered_json& measures) {
  if (job.settings.context > 0)
    measures["RoPE alone"] =
        measured(job, "RoPE alone", text, [&] { return prepare(job, {}, true).model; });
  if (job.settings.learn == "norm") return;
  measures["norm alone"] = measured(job, "norm alone", text, [&] {
    RunFolder folder(job.folder.path() / "controls" / "norm", "calibrate");
    if (!folder.mark()) folder.begin(ordered_json::object(), "");
    return learn_in(job, "norm", folder, source).model;
  });
}

// On the CPU, whose kernels can tell what attention did.
ordered_json temperatures(const Job& job, nn::Model& model, const train::DataSource& source) {
  const int64_t length = std::min<int64_t>(job.length, 1024);
  const auto batch =
      eval::to_model_batch(source.dataset(length, 0)->train(data::whole_batch(0, 1)));
  model.to(torch::kCPU);
  model.eval();
  return adapt::learned_temperatures(model, batch);
}

// Before anything long: how long all of it takes on this machine, and what it is.
void say_duration(const Job& job, nn::Model& model) {
  const auto training = training_options(job);
  const auto one = adapt::windows_of(measure_options(job));
  const adapt::Windows learning{.length = job.length,
                                .tokens = training.steps * training.batch * job.length,
                                .passes = adapt::passes_of_learning(training.recompute)};
  const bool norm_alone = job.settings.controls && job.settings.learn != "norm";
  std::vector<std::string> names{"before", "after"};
  if (job.settings.controls && job.settings.context > 0) names.emplace_back("RoPE alone");
  if (norm_alone) names.emplace_back("norm alone");
  std::vector<adapt::Windows> all(norm_alone ? 2 : 1, learning);
  for (const auto& name : names)
    if (!fs::exists(measures_file(job, name))) all.insert(all.end(), one.begin(), one.end());
  std::cerr << about_text(adapt::estimate_seconds(model, all)) << ": "
            << count_text(learning.tokens) << " tokens to learn from (--tokens), and "
            << names.size() << " measurements of up to " << count_text(adapt::tokens_of(one))
            << " tokens (--eval-tokens, --passkey-cases)\n";
}

void save(const ordered_json& result, const fs::path& folder) {
  write_file(folder / "calibration.json", result.dump(2) + "\n");
  const auto figure = adapt::to_figure(result);
  plot::save(figure, folder / "calibration.svg");
  plot::save(figure, folder / "calibration.png");
  adapt::to_html(result).save(folder / "report.html");
}

ordered_json calibrate(Job& job, const train::DataSource& source) {
  const CalibrateSettings& settings = job.settings;
  const auto text = held_out_text(job, source);
  ordered_json measures;
  auto unchanged = prepare(job, {}, false).model;
  say_duration(job, *unchanged);
  measures["before"] = measured(job, "before", text, [&] { return unchanged; });
  unchanged.reset();
  const Learned learned = learn_in(job, settings.learn, job.folder, source);
  measures["after"] = measured(job, "after", text, [&] { return learned.model; });
  for (const auto& line : adapt::worse_places(measures["before"], measures["after"]))
    warn(job, line);
  if (settings.controls) measure_controls(job, source, text, measures);
  return {{"model", settings.model},
          {"name", job.original.path.filename().string()},
          {"out", settings.place.out},
          {"learned", settings.learn},
          {"numbers", learned.numbers},
          {"parameters", learned.model->parameter_count()},
          {"context", job.context},
          {"length", job.length},
          {"rope_base", learned.model->config().rope.base},
          {"tokens", learned.result.tokens},
          {"seconds", learned.result.seconds},
          {"measures", std::move(measures)},
          {"temperatures", temperatures(job, *learned.model, source)},
          {"warnings", job.warnings}};
}

bool folds(const adapt::Learn& learn) {
  if (!learn.temperature) return true;
  return std::ranges::all_of(split_methods(learn.temperature->method),
                             [](const auto& name) { return find_method(name).folds != "no"; });
}

void run(const CalibrateSettings& settings) {
  check(settings);
  if (settings.place.threads > 0) at::set_num_threads(static_cast<int>(settings.place.threads));
  const InterruptGuard guard;
  RunFolder folder(settings.place.out, "calibrate", kFiles);
  const bool anew = settings.fresh && folder.mark();
  const fs::path aside = anew ? folder.set_aside() : fs::path();
  if (folder.mark()) folder.refuse_other_build();
  open_run(folder, settings, settings.place.resume);
  Job job = open_job(settings, folder);
  if (settings.context > 0)  // refused before anything is read or measured
    adapt::extend_context(*job.original.model, settings.context, settings.rope_base);
  const train::DataOptions data{.task = {},
                                .task_options = {},
                                .text = settings.text,
                                .held_out = settings.eval_text.empty() ? settings.held_out : 0};
  const train::DataSource source = open_data(data, folder, job.tokenizer);
  source.dataset(job.length, 0);  // a text that is too short is refused before anything is measured
  set_held_out(job, source);
  folder.keep();
  if (anew) std::cerr << "the earlier calibration is in '" << aside.string() << "' now\n";
  const ordered_json result = calibrate(job, source);
  save(result, folder.path());
  if (settings.place.json) {
    std::cout << result.dump(2) << "\n";
    return;
  }
  std::cout << adapt::to_text(result) << "report                  "
            << (folder.path() / "report.html").string() << "\n";
  if (folds(adapt::parse_learn(settings.learn)))
    std::cout << "to use it elsewhere     tempera export " << quoted(settings.place.out)
              << " --fold --out FOLDER\n";
  else
    std::cout << "to use it               tempera generate " << quoted(settings.place.out)
              << " (other programs cannot: it does not fold into weights)\n";
}

}  // namespace

Verb calibrate_verb() {
  return make_verb<CalibrateSettings>(
      "calibrate", "learns temperatures for an existing model with its weights frozen",
      {{"tempera calibrate MODEL --text book.txt",
        "norm gains and temperatures that fold into the weights"},
       {"tempera calibrate MODEL --text book.txt --context 16384", "and a longer context"},
       {"tempera calibrate MODEL --text book.txt --learn ssa --controls",
        "another method, with controls"}},
      run);
}

}  // namespace tempera::cli
