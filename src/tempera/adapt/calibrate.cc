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
#include "tempera/eval/held_out.h"
#include "tempera/models/device.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

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
constexpr int64_t kMostKept = 2'000'000'000;

constexpr const char* kBefore = "before";
constexpr const char* kAfter = "after";
constexpr const char* kRopeAlone = "RoPE alone";
constexpr const char* kNormAlone = "norm alone";

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  if (fs::equivalent(a, b, missing)) return true;
  if (missing || fs::file_size(a, missing) != fs::file_size(b, missing) || missing) return false;
  const MappedFile left(a), right(b);
  return std::ranges::equal(left.bytes(), right.bytes());
}

bool folds(const Learn& learn) {
  if (!learn.temperature) return true;
  return std::ranges::all_of(split_methods(learn.temperature->method),
                             [](const auto& name) { return find_method(name).folds != "no"; });
}

}  // namespace

const std::vector<std::string>& calibration_files() {
  static const std::vector<std::string> names = {"measures",         "controls",
                                                 "calibration.json", "calibration.svg",
                                                 "calibration.png",  "report.html"};
  return names;
}

Calibrator::Calibrator(const CalibrateOptions& options, train::RunFolder& folder,
                       CalibrateEvents events)
    : options_(options),
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
  if (config.temperature.method != "softmax")
    throw UsageError(concat("the model has the temperature '", config.temperature.method,
                            "' already; fold it into the weights first (tempera export --fold)"));
  trained_ = config.context;
  context_ = options.context > 0 ? options.context : config.context;
  length_ = options.length > 0 ? options.length : context_;
  if (options.context > 0) extended_rope_base(config, context_, options.rope_base);  // may refuse
  if (length_ > context_)
    throw UsageError(concat("--length: ", length_, " given, the context is ", context_,
                            "; give --context to stretch it"));
  if (length_ < context_)
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
  if (!options_.eval_text.empty()) return;
  held_out_ = source.held_out_tokens();
  if (held_out_ > 0 && *lengths_to_measure().rbegin() > held_out_)
    warn(concat("the held-out part of the text has ", held_out_,
                " tokens: no longer windows are measured; for those, give more text, a larger "
                "--held-out or --eval-text"));
}

// A clone with what is to be learned, everything else frozen, on the device.
Calibrator::Prepared Calibrator::prepare(const Learn& learn, bool stretched) const {
  models::LoadOptions options;
  if (learn.temperature)
    options.temperature = suited_temperature(*learn.temperature, original_.model->config(),
                                             [&](const std::string& line) { events_.say(line); });
  Prepared prepared{models::clone_model(*original_.model, options), {}};
  nn::Model& model = *prepared.model;
  if (stretched && options_.context > 0)
    model.set_context(context_, extended_rope_base(model.config(), context_, options_.rope_base));
  prepared.learned = freeze_others(model, [&](const nn::NamedParameter& p) {
    return p.kind == nn::ParameterKind::kTemperature || (learn.norm && is_norm_gain(p));
  });
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
  options.micro_batch = std::clamp<int64_t>(most / length_, 1, options.batch);
  options.recompute = device_.is_cpu() && length_ > kMostKept / kept;
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

Calibrator::Learned Calibrator::learn_in(const std::string& what, train::RunFolder& folder,
                                         const train::DataSource& source) const {
  auto prepared = prepare(parse_learn(what), /*stretched=*/true);
  Learned learned{.model = prepared.model};
  for (const auto& parameter : prepared.learned) learned.numbers += parameter.tensor.numel();
  learned.result = events_.show(what, [&](train::TrainEvents events) {
    const auto seed = static_cast<uint64_t>(options_.seed);
    train::Trainer trainer(
        training(), prepared.model,
        [&](size_t, int64_t length) { return source.dataset(length, seed); }, std::move(events),
        models::stored_tokenizer(original_), prepared.learned);
    trainer.attach(folder);
    return trainer.run();
  });
  return learned;
}

std::set<int64_t> Calibrator::lengths_to_measure() const {
  const auto& given = options_.eval_lengths;
  if (!given.empty()) return {given.begin(), given.end()};
  return {std::min<int64_t>(2048, length_), std::min(trained_, length_), length_};
}

// Of perplexity: no window is longer than the text that is there.
std::vector<int64_t> Calibrator::windows_to_measure() const {
  std::set<int64_t> windows;
  for (const int64_t length : lengths_to_measure())
    windows.insert(held_out_ > 0 ? std::min(length, held_out_) : length);
  return {windows.begin(), windows.end()};
}

HeldOutText Calibrator::held_out_text(const train::DataSource& source) const {
  HeldOutText text;
  if (options_.eval_text.empty()) {
    text.own = [&source](int64_t length) { return source.dataset(length, 0); };
    return text;
  }
  const std::vector<fs::path> files(options_.eval_text.begin(), options_.eval_text.end());
  text.documents = eval::read_documents(files, *tokenizer_, options_.eval_tokens);
  return text;
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
  return folder_.path() / "measures" / (name + ".json");
}

// Measured once: an interrupted run finds it again.
Measure Calibrator::measured(const std::string& name, const HeldOutText& text,
                             const std::function<std::shared_ptr<nn::Model>()>& model) const {
  const fs::path file = measure_file(name);
  if (fs::exists(file)) {
    events_.say(concat("measure ", name, ": finished before; --fresh measures it again"));
    return measure_of(Json::parse(read_file(file, kLargestMeasure)));
  }
  const auto options = measuring();
  const int64_t most = tokens_of(windows_of(options));
  Progress progress("measure " + name, most, "tokens");
  Measure result = measure(*model(), *tokenizer_, text, options, [&](int64_t tokens) {
    progress.update(tokens);
    if (const int signal = InterruptGuard::signal())
      throw Interrupted(signal, concat("interrupted while measuring; what is finished is saved. To "
                                       "go on:\n  ",
                                       events_.command));
  });
  progress.update(most);  // a short text has fewer
  progress.finish();
  fs::create_directories(file.parent_path());
  write_file(file, to_json(result).dump(2) + "\n");
  return result;
}

// What the temperature itself did not do.
void Calibrator::measure_controls(const train::DataSource& source, const HeldOutText& text,
                                  Measures& measures) const {
  if (options_.context > 0)
    measures.emplace_back(kRopeAlone,
                          measured(kRopeAlone, text, [&] { return prepare({}, true).model; }));
  if (options_.learn == kNorm) return;
  measures.emplace_back(kNormAlone, measured(kNormAlone, text, [&] {
                          train::RunFolder folder(folder_.path() / "controls" / kNorm, "calibrate");
                          if (!folder.mark()) folder.begin(Json::object(), "");
                          return learn_in(kNorm, folder, source).model;
                        }));
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

// Before anything long: how long all of it takes on this machine, and what it is.
void Calibrator::say_duration(nn::Model& model) const {
  const auto options = training();
  const auto one = windows_of(measuring());
  const Windows learning{.length = length_,
                         .tokens = options.steps * options.batch * length_,
                         .passes = passes_of_learning(options.recompute)};
  const bool norm_alone = options_.controls && options_.learn != kNorm;
  std::vector<std::string> names{kBefore, kAfter};
  if (options_.controls && options_.context > 0) names.emplace_back(kRopeAlone);
  if (norm_alone) names.emplace_back(kNormAlone);
  std::vector<Windows> all(norm_alone ? 2 : 1, learning);
  for (const auto& name : names)
    if (!fs::exists(measure_file(name))) all.insert(all.end(), one.begin(), one.end());
  events_.say(concat(about_text(estimate_seconds(model, all)), ": ", count_text(learning.tokens),
                     " tokens to learn from (--tokens), and ", names.size(),
                     " measurements of up to ", count_text(tokens_of(one)),
                     " tokens (--eval-tokens, --passkey-cases)"));
}

CalibrationResult Calibrator::run(const train::DataSource& source) {
  const auto text = held_out_text(source);
  Measures measures;
  auto unchanged = prepare({}, false).model;
  say_duration(*unchanged);
  measures.emplace_back(kBefore, measured(kBefore, text, [&] { return unchanged; }));
  unchanged.reset();
  const Learned learned = learn_in(options_.learn, folder_, source);
  measures.emplace_back(kAfter, measured(kAfter, text, [&] { return learned.model; }));
  for (const auto& line : worse_places(measures[0].second, measures[1].second)) warn(line);
  if (options_.controls) measure_controls(source, text, measures);
  return {.model = options_.model,
          .name = original_.path.filename().string(),
          .out = folder_.path().string(),
          .learned = options_.learn,
          .folds = folds(parse_learn(options_.learn)),
          .numbers = learned.numbers,
          .parameters = learned.model->parameter_count(),
          .context = context_,
          .length = length_,
          .rope_base = learned.model->config().rope.base,
          .tokens = learned.result.tokens,
          .seconds = learned.result.seconds,
          .measures = std::move(measures),
          .temperatures = temperatures(*learned.model, source),
          .warnings = warnings_};
}

}  // namespace tempera::adapt
