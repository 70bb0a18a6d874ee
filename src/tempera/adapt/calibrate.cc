#include "tempera/adapt/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tempera/adapt/estimate.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/data/tensors.h"
#include "tempera/eval/haystack.h"
#include "tempera/eval/held_out.h"
#include "tempera/models/device.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/train/context_ranks.h"

namespace tempera::adapt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestMeasure = 64U << 20;
// The question and the number alone have more than a hundred tokens.
constexpr int64_t kShortestHay = 512;
// Rows that one pass of training sees at most on a CPU, whose caches are small; a GPU wants more.
constexpr int64_t kTokensOfPass = 2048, kTokensOfGpuPass = 16384;
// Bytes for the backward pass above which it is computed again instead of kept.
constexpr int64_t kMostKept = 3'000'000'000;

constexpr const char* kBefore = "before";
constexpr const char* kAfter = "after";
// The shortest window that is measured.
constexpr int64_t kShortest = 512;

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  if (fs::equivalent(a, b, missing)) return true;
  if (missing || fs::file_size(a, missing) != fs::file_size(b, missing) || missing) return false;
  const MappedFile left(a), right(b);
  return std::ranges::equal(left.bytes(), right.bytes());
}

// The words of a list that name a temperature.
std::string temperatures_of(const std::string& learn) {
  std::string kept;
  for (size_t begin = 0; begin <= learn.size();) {
    const size_t end = std::min(learn.find(',', begin), learn.size());
    const auto word = learn.substr(begin, end - begin);
    if (word != kNorm && word != kRope && word != kLora) kept += (kept.empty() ? "" : ",") + word;
    begin = end + 1;
  }
  return kept;
}

bool folds(const Learn& learn) {
  if (!learn.temperature) return true;
  return std::ranges::all_of(split_methods(learn.temperature->method),
                             [](const auto& name) { return find_method(name).folds != "no"; });
}

}  // namespace

const std::vector<std::string>& calibration_files() {
  static const std::vector<std::string> names = {"measures", "controls", "calibration.json",
                                                 "calibration.svg", "calibration.png"};
  return names;
}

Calibrator::Calibrator(const CalibrateOptions& options, dist::World& world,
                       train::RunFolder* folder, CalibrateEvents events)
    : options_(options),
      world_(world),
      folder_(folder),
      events_(std::move(events)),
      original_(models::load_model(options.model)),
      tokenizer_(models::tokenizer_of(original_)),
      device_(models::resolve_device(options.device)) {
  nn::require_decoder(*original_.model, "calibrating");
  TEMPERA_CHECK(
      tokenizer_, original_.path.string(),
      ": the model has no tokenizer: it was trained on a built-in task and reads no text");
  const auto& config = original_.model->config();
  nn::check_context_ranks(config, /*length=*/0, options.context_ranks);
  if (config.temperature.method != "softmax")
    throw UsageError(concat("the model has the temperature '", config.temperature.method,
                            "' already; fold it into the weights first (tempera export --fold)"));
  trained_ = trained_context(config);
  context_ = options.context > 0 ? options.context : config.context;
  length_ = options.windows.spread > 0 ? options.windows.spread
            : options.length > 0       ? options.length
                                       : context_;
  auto settled = config;
  settled.rope = original_.model->settled_rope();
  rope_ = options.context > 0 ? stretch_rope(settled, context_, options.rope)
                              : StretchedRope{.rope = settled.rope};
  settled.rope = rope_.rope;
  if (parse_learn(options.learn).rope) learnable_rope(settled);  // may refuse
  options.windows.check_fits(config, length_, context_);
  if (length_ > context_)
    throw UsageError(concat("--length: ", length_, " given, the context is ", context_,
                            "; give --context to stretch it"));
  if (length_ < context_ && options.windows.spread == 0)
    warn(concat("windows of ", length_, " tokens are shorter than the context of ", context_,
                ": positions beyond may get worse"));
  check_same_texts();
}

void Calibrator::warn(const std::string& line) {
  events_.say("warning: " + line);
  warnings_.push_back(line);
}

void Calibrator::check_same_texts() {
  for (const auto& text : options_.text)
    for (const auto& held_out : options_.eval_text)
      if (same_file(text, held_out))
        warn(concat("'", held_out,
                    "' is the text that is learned from, too: what is measured on it says nothing "
                    "about other text"));
}

train::DataOptions Calibrator::data() const {
  return {.task = {},
          .task_options = {},
          .text = options_.text,
          .held_out = options_.eval_text.empty() ? options_.held_out : 0};
}

void Calibrator::check_text(const train::DataSource& source) {
  source.dataset(length_, 0);
  if (options_.passkey_cases > 0) eval::Haystack(options_.passkey_text, *tokenizer_);
  if (!options_.eval_text.empty()) return read_eval_text();
  held_out_ = source.held_out_tokens();
  if (held_out_ > 0 && *lengths_to_measure().rbegin() > held_out_)
    warn(concat("the held-out part of the text has ", held_out_,
                " tokens: no longer windows are measured; for those, give more text, a larger "
                "--held-out or --eval-text"));
}

models::LoadOptions Calibrator::changes(const Learn& learn, bool stretched) const {
  models::LoadOptions options;
  if (learn.temperature)
    options.temperature = suited_temperature(*learn.temperature, original_.model->config(),
                                             [&](const std::string& line) { events_.say(line); });
  if (learn.lora) options.lora = nn::LoraConfig{.rank = kLoraRank, .alpha = 2 * kLoraRank};
  if (!stretched || (options_.context == 0 && !learn.rope)) return options;
  auto config = original_.model->config();
  config.context = context_;
  config.rope = rope_.rope;
  options.positions = {.context = context_, .rope = config.rope};
  if (!learn.rope) return options;
  options.positions->rope = learnable_rope(config);
  options.positions->rope.original_context = trained_;
  return options;
}

// A clone with what is to be learned, everything else frozen, on the device.
Calibrator::Prepared Calibrator::prepare(const Learn& learn, bool stretched) const {
  Prepared prepared{models::clone_model(*original_.model, changes(learn, stretched)), {}};
  nn::Model& model = *prepared.model;
  if (learn.lora) nn::initialize_adapters(model, static_cast<uint64_t>(options_.seed));
  prepared.learned =
      freeze_others(model, [&](const nn::NamedParameter& p) { return is_learned(learn, p); });
  for (auto& parameter : prepared.learned)
    if (parameter.kind == nn::ParameterKind::kAdapter) parameter.rate = kLoraRate;
  model.round_frozen(models::scalar_type(options_.dtype));
  model.to(device_);
  return prepared;
}

train::TrainOptions Calibrator::training() const {
  const auto& config = original_.model->config();
  train::TrainOptions options;
  options.row_length = length_;
  options.batch = std::max<int64_t>(1, options_.step_tokens / length_);
  const int64_t tokens = options.batch * length_;
  options.steps = (options_.tokens + tokens - 1) / tokens;
  // On the CPU a pass has as many rows as its memory may hold; activations are computed twice only
  // where one row is too much.
  const int64_t kept = 4 * config.layers * (8 * config.width + 3 * config.size_of_mlp());
  const int64_t most =
      device_.is_cuda() ? kTokensOfGpuPass : std::min(kTokensOfPass, kMostKept / kept);
  options.context_ranks = options_.context_ranks;
  const int64_t own = std::max<int64_t>(1, length_ / options_.context_ranks);
  options.micro_batch = std::clamp<int64_t>(most / own, 1, options.batch);
  options.recompute = device_.is_cpu() && own > kMostKept / kept;
  options.seed = options_.seed;
  options.dtype = options_.dtype;
  options.device = options_.device;
  options.optimizer.learning_rate = options_.learning_rate;
  options.optimizer.temperature_rate = options_.temperature_rate;
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

WindowPlan Calibrator::window_plan() const {
  return {
      .context = context_, .steps = training().steps, .seed = static_cast<uint64_t>(options_.seed)};
}

Calibrator::Learned Calibrator::learn_in(const std::string& what, train::RunFolder* folder,
                                         const train::DataSource& source) const {
  auto prepared = prepare(parse_learn(what), /*stretched=*/true);
  Learned learned{.model = prepared.model};
  for (const auto& parameter : prepared.learned) learned.numbers += parameter.tensor.numel();
  learned.result = events_.show(what, [&](train::TrainEvents events) {
    const auto seed = static_cast<uint64_t>(options_.seed);
    train::Trainer trainer(
        training(), prepared.model,
        [&](size_t, int64_t length) -> std::shared_ptr<const data::Dataset> {
          return learning_windows(source.dataset(length, seed), options_.windows, window_plan());
        },
        std::move(events), models::stored_tokenizer(original_), prepared.learned);
    trainer.join(world_);
    if (folder)
      trainer.attach(*folder, folder == folder_ ? events_.tensorboard : fs::path());
    else
      trainer.attach_to_first();
    return trainer.run();
  });
  return learned;
}

std::set<int64_t> Calibrator::lengths_to_measure() const {
  const auto& given = options_.eval_lengths;
  if (!given.empty()) return {given.begin(), given.end()};
  std::set<int64_t> lengths{std::min(trained_, context_), context_};
  for (int64_t length = kShortest; length < context_; length *= 2) lengths.insert(length);
  return lengths;
}

// Of perplexity: no window is longer than the text that is there.
std::vector<int64_t> Calibrator::windows_to_measure() const {
  std::set<int64_t> windows;
  for (const int64_t length : lengths_to_measure())
    windows.insert(held_out_ > 0 ? std::min(length, held_out_) : length);
  return {windows.begin(), windows.end()};
}

void Calibrator::read_eval_text() {
  const std::vector<fs::path> files(options_.eval_text.begin(), options_.eval_text.end());
  eval_text_ = eval::read_documents(files, *tokenizer_, options_.eval_tokens);
  TEMPERA_CHECK(
      std::ranges::any_of(eval_text_, [](const auto& document) { return document.size() > 1; }),
      "--eval-text: no document of two tokens given; a longer text expected");
}

HeldOutText Calibrator::held_out_text(const train::DataSource& source) const {
  if (!options_.eval_text.empty()) return {.documents = eval_text_};
  return {.own = [&source](int64_t length) { return source.dataset(length, 0); }};
}

MeasureOptions Calibrator::measuring() const {
  MeasureOptions options{
      .lengths = windows_to_measure(), .tokens = options_.eval_tokens, .passkey = {}};
  options.passkey.hay = options_.passkey_text;
  options.passkey.lengths.clear();
  for (const int64_t length : lengths_to_measure())
    if (length >= kShortestHay) options.passkey.lengths.push_back(length);
  options.passkey.cases = options.passkey.lengths.empty() ? 0 : options_.passkey_cases;
  return options;
}

fs::path Calibrator::measure_file(const std::string& name) const {
  return folder_->path() / "measures" / (name + ".json");
}

bool Calibrator::is_measured(const std::string& name) const {
  return folder_ && fs::exists(measure_file(name));
}

// Measured once: an interrupted run finds it again.
Measure Calibrator::measured(const std::string& name, const HeldOutText& text,
                             const std::function<std::shared_ptr<nn::Model>()>& make) const {
  const std::string own = is_measured(name) ? read_file(measure_file(name), kLargestMeasure) : "";
  world_.await_all();  // the first may have worked alone
  if (const auto before = world_.from_first(own); !before.empty()) {
    events_.say(concat("measure ", name, ": finished before; --fresh measures it again"));
    return measure_of(Json::parse(before));
  }
  const auto options = measuring();
  const int64_t most = tokens_of(windows_of(options));
  const auto model = make();
  const auto context = world_.alone() ? nullptr
                                      : std::make_unique<train::ContextRanks>(
                                            world_, *model, options_.context_ranks);
  std::optional<Progress> progress;
  if (folder_) progress.emplace("measure " + name, most, "tokens");
  Measure result = measure(*model, *tokenizer_, text, options, [&](int64_t tokens) {
    if (progress) progress->update(tokens);
    if (const int signal = world_.any_signal(InterruptGuard::signal()))
      throw Interrupted(signal, concat("interrupted while measuring; what is finished is saved. To "
                                       "go on:\n  ",
                                       events_.command));
  });
  if (!folder_) return result;
  progress->update(most);  // a short text has fewer
  progress->finish();
  const fs::path file = measure_file(name);
  fs::create_directories(file.parent_path());
  write_file(file, to_json(result).dump(2) + "\n");
  return result;
}

// Those that were asked for, but for what is learned itself.
std::vector<Calibrator::Control> Calibrator::controls() const {
  const auto wanted = [&](const char* name) {
    return std::ranges::any_of(options_.controls,
                               [&](const auto& given) { return given == name || given == "all"; });
  };
  std::vector<Control> list;
  if (wanted("positions") && options_.context > 0) list.push_back({"positions alone", ""});
  const auto add = [&](const char* option, const char* name, const std::string& learn) {
    if (wanted(option) && !learn.empty() && learn != options_.learn) list.push_back({name, learn});
  };
  add("norm", "norm alone", kNorm);
  add("temperature", "temperatures alone", temperatures_of(options_.learn));
  add("lora", "LoRA", kLora);
  return list;
}

// What the others reach by themselves.
void Calibrator::measure_controls(const train::DataSource& source, const HeldOutText& text,
                                  Measures& measures) const {
  for (const auto& [name, learn] : controls()) {
    const auto model = [&]() -> std::shared_ptr<nn::Model> {
      if (learn.empty()) return prepare({}, /*stretched=*/true).model;
      std::optional<train::RunFolder> folder;
      if (folder_) folder.emplace(folder_->path() / "controls" / name, "calibrate");
      if (folder && !folder->mark()) folder->begin(Json::object(), "");
      return learn_in(learn, folder ? &*folder : nullptr, source).model;
    };
    measures.emplace_back(name, measured(name, text, model));
  }
}

// On the CPU, whose kernels can tell what attention did.
std::vector<LayerTemperatures> Calibrator::temperatures(nn::Model& model,
                                                        const train::DataSource& source) const {
  const int64_t length = std::min<int64_t>(length_, 1024);
  const auto batch =
      data::to_model_batch(source.dataset(length, 0)->train(data::whole_batch(0, 1)));
  model.to(torch::kCPU);
  model.eval();
  return learned_temperatures(model, batch);
}

Json Calibrator::rope_json(const nn::Model& model) const {
  if (model.config().position != nn::PositionKind::kRope) return {};
  auto now = rope_;
  now.rope = model.settled_rope();
  Json json = to_json(now, options_.rope, model.config().rotary_size());
  if (options_.context == 0) json["rule"] = "none";
  return json;
}

// Before anything long: how long all of it takes on this machine, and what it is.
void Calibrator::say_duration(nn::Model& model) const {
  const auto options = training();
  const auto one = windows_of(measuring());
  const Windows learning{.length = length_,
                         .tokens = options.steps * options.batch * length_,
                         .passes = passes_of_learning(options.recompute)};
  std::vector<std::string> names{kBefore, kAfter};
  std::vector<Windows> all{learning};
  for (const auto& control : controls()) {
    names.push_back(control.name);
    if (!control.learn.empty()) all.push_back(learning);
  }
  for (const auto& name : names)
    if (!is_measured(name)) all.insert(all.end(), one.begin(), one.end());
  const double seconds = estimate_seconds(model, all) / static_cast<double>(world_.size());
  events_.say(concat(about_text(seconds), ": ", count_text(learning.tokens),
                     " tokens to learn from (--tokens), and ", names.size(),
                     " measurements of up to ", count_text(tokens_of(one)),
                     " tokens (--eval-tokens, --passkey-cases)"));
}

std::optional<CalibrationResult> Calibrator::run(const train::DataSource& source) {
  const auto text = held_out_text(source);
  Measures measures;
  auto unchanged = prepare({}, false).model;
  for (const auto& line : window_lines(options_.windows, length_, window_plan())) events_.say(line);
  if (folder_) say_duration(*unchanged);
  measures.emplace_back(kBefore, measured(kBefore, text, [&] { return unchanged; }));
  unchanged.reset();
  const Learned learned = learn_in(options_.learn, folder_, source);
  measures.emplace_back(kAfter, measured(kAfter, text, [&] { return learned.model; }));
  for (const auto& line : worse_places(measures[0].second, measures[1].second)) warn(line);
  measure_controls(source, text, measures);
  if (!folder_) return std::nullopt;
  return CalibrationResult{.model = options_.model,
                           .name = original_.path.filename().string(),
                           .out = folder_->path().string(),
                           .learned = options_.learn,
                           .folds = folds(parse_learn(options_.learn)),
                           .numbers = learned.numbers,
                           .parameters = learned.model->parameter_count(),
                           .context = context_,
                           .length = length_,
                           .rope = rope_json(*learned.model),
                           .windows = to_json(options_.windows),
                           .tokens = learned.result.tokens,
                           .seconds = learned.result.seconds,
                           .measures = std::move(measures),
                           .temperatures = temperatures(*learned.model, source),
                           .warnings = warnings_};
}

}  // namespace tempera::adapt
