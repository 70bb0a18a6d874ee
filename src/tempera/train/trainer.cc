#include "tempera/train/trainer.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/version.h"
#include "tempera/data/checksum.h"
#include "tempera/data/random.h"
#include "tempera/data/tensors.h"
#include "tempera/eval/held_out.h"
#include "tempera/models/device.h"
#include "tempera/models/load.h"
#include "tempera/ops/torch.h"
#include "tempera/train/divergence.h"

namespace tempera::train {
namespace {

// Adds the time that it lives to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int64_t target_count(const nn::Batch& batch) { return batch.targets.ge(0).sum().item<int64_t>(); }

// Of both sides, where the model reads one and writes the other.
int64_t token_count(const nn::Batch& batch) {
  return batch.tokens.numel() + (batch.source.defined() ? batch.source.numel() : 0);
}

std::string number_text(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? "infinite" : concat(value);
}

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

Trainer::Trainer(const TrainOptions& options, std::shared_ptr<nn::Model> model,
                 const DataForStage& data, TrainEvents events, models::StoredTokenizer tokenizer,
                 std::vector<nn::NamedParameter> learned)
    : options_(options),
      model_(std::move(model)),
      events_(std::move(events)),
      tokenizer_(std::move(tokenizer)),
      device_(models::resolve_device(options.device)),
      stages_(plan_stages(options, model_->config())),
      total_steps_(planned_steps(options, stages_)),
      last_loss_(std::numeric_limits<double>::quiet_NaN()) {
  options_.validate();
  const nn::ModelConfig& config = model_->config();
  for (size_t i = 0; i < stages_.size(); ++i) {
    datasets_.push_back(data(i, stages_[i].length));
    data::check_fits(*datasets_.back(), {.vocabulary = config.vocabulary,
                                         .classes = config.output_count(),
                                         .max_length = config.max_length()});
  }
  model_->to(device_);
  model_->set_recompute(options_.recompute);
  model_->set_compute_type(models::scalar_type(options_.dtype));
  parameters_ = learned.empty() ? model_->parameter_list() : std::move(learned);
  optimizer_ = make_optimizer(options_.optimizer, parameters_);
}

void Trainer::say(const std::string& line) const {
  if (events_.say) events_.say(line);
}

const PlannedStage& Trainer::stage_of(int64_t step) const {
  const PlannedStage* found = &stages_.front();
  for (const auto& stage : stages_)
    if (step >= stage.first_step) found = &stage;
  return *found;
}

nn::Batch Trainer::batch(int64_t step, int64_t first_row, int64_t rows,
                         torch::Device device) const {
  const PlannedStage& stage = stage_of(step);
  const data::Dataset& dataset = *datasets_[static_cast<size_t>(&stage - stages_.data())];
  return data::to_model_batch(dataset.train({.step = static_cast<uint64_t>(step - stage.first_step),
                                             .batch_rows = stage.rows,
                                             .first_row = first_row,
                                             .rows = rows}),
                              device);
}

std::vector<nn::Batch> Trainer::micro_batches(int64_t step) const {
  const PlannedStage& stage = stage_of(step);
  const int64_t most = options_.micro_batch > 0 ? options_.micro_batch : stage.rows;
  const uint64_t dropout_seed =
      data::mix64(data::derive_seed(static_cast<uint64_t>(options_.seed), "train/dropout") +
                  static_cast<uint64_t>(step));
  std::vector<nn::Batch> batches;
  for (int64_t row = 0; row < stage.rows; row += most) {
    batches.push_back(batch(step, row, std::min(most, stage.rows - row), device_));
    batches.back().dropout_seed = data::mix64(dropout_seed + static_cast<uint64_t>(row));
  }
  return batches;
}

double Trainer::accumulate(const std::vector<nn::Batch>& batches) {
  int64_t targets = 0;
  for (const auto& batch : batches) targets += target_count(batch);
  model_->train();
  model_->zero_grad();
  double loss = 0;
  for (const auto& batch : batches) {
    // Every predicted token counts the same, whichever micro-batch it is in.
    const double weight = batches.size() == 1
                              ? 1
                              : static_cast<double>(target_count(batch)) /
                                    static_cast<double>(std::max<int64_t>(targets, 1));
    auto part = model_->loss(batch, options_.label_smoothing);
    if (weight != 1) part = part * weight;
    part.backward();
    loss += part.item<double>();
  }
  return loss;
}

bool Trainer::uses_graph(int64_t step) const {
  const PlannedStage& stage = stage_of(step);
  return GraphStep::possible(*model_, device_, options_.optimizer) &&
         (options_.micro_batch == 0 || options_.micro_batch >= stage.rows);
}

void Trainer::check_finite(const GraphStep::Result& result, int64_t step) const {
  if (std::isfinite(result.loss) && std::isfinite(result.norm)) return;
  throw Error(concat("step ", step + 1, ": the loss is ", number_text(result.loss),
                     " and the norm of the gradients is ", number_text(result.norm), ": ",
                     find_divergence(*model_, micro_batches(step), options_.label_smoothing), "; ",
                     last_saved_text(),
                     "; a lower --learning-rate, a longer --warmup or a lower --clip may help, "
                     "in another folder"));
}

void Trainer::make_graph() {
  graph_ = std::make_unique<GraphStep>(*model_, *optimizer_, options_.optimizer,
                                       options_.label_smoothing);
  feed_.emplace([this](int64_t step) { return batch(step, 0, stage_of(step).rows, torch::kCPU); },
                [this](const nn::Batch& next) { graph_->load(next); });
}

std::optional<GraphStep::Result> Trainer::update_in_graph(int64_t step, double rate) {
  if (!graph_) make_graph();
  if (!feed_->take(step)) {
    if (!std::exchange(said_no_graph_, true))
      say("batches with several documents or padding are computed without a CUDA graph");
    return std::nullopt;
  }
  graph_->start(rate);
  // The next batch is made and copied while the GPU works.
  const bool same_stage = &stage_of(step + 1) == &stage_of(step);
  const bool more = total_steps_ == 0 || step + 1 < total_steps_;
  if (same_stage && more) feed_->fetch_ahead(step + 1);
  const GraphStep::Result result = graph_->finish();
  check_finite(result, step);
  return result;
}

GraphStep::Result Trainer::update(int64_t step, double rate) {
  if (uses_graph(step))
    if (const auto done = update_in_graph(step, rate)) return *done;
  const auto batches = micro_batches(step);
  GraphStep::Result result;
  for (const auto& part : batches) result.tokens += token_count(part);
  result.loss = accumulate(batches);
  result.norm = gradient_norm(parameters_);
  check_finite(result, step);
  const double clip = options_.optimizer.clip;
  optimizer_->step(
      {.rate = rate, .gradient_scale = clip > 0 && result.norm > clip ? clip / result.norm : 1});
  return result;
}

void Trainer::use_base_of(const PlannedStage& stage) {
  if (model_->config().rope.base == stage.rope_base) return;
  model_->set_context(model_->config().context, stage.rope_base);
  feed_.reset();
  graph_.reset();
}

StepReport Trainer::train_step() {
  const int64_t step = position_.step;
  const double spent = progress();
  const double before = position_.seconds;
  const PlannedStage& stage = stage_of(step);
  const double rate = options_.optimizer.learning_rate * options_.schedule.factor(step, spent);
  GraphStep::Result result;
  {
    const Stopwatch watch(position_.seconds);
    use_base_of(stage);
    result = update(step, rate);
  }
  position_.step += 1;
  position_.tokens += result.tokens;
  last_loss_ = result.loss;
  const double taken = position_.seconds - before;
  return {.step = position_.step,
          .steps = total_steps_,
          .progress = progress(),
          .loss = result.loss,
          .learning_rate = rate,
          .gradient_norm = result.norm,
          .tokens = position_.tokens,
          .seconds = position_.seconds,
          .tokens_per_second = taken > 0 ? static_cast<double>(result.tokens) / taken : 0};
}

double Trainer::progress() const {
  const auto share = [](double done, double budget) { return budget > 0 ? done / budget : 0; };
  return std::min(
      1.0,
      std::max({share(static_cast<double>(position_.step), static_cast<double>(total_steps_)),
                share(static_cast<double>(position_.tokens), static_cast<double>(options_.tokens)),
                share(position_.seconds, options_.seconds)}));
}

bool Trainer::finished() const { return progress() >= 1; }

std::optional<Validation> Trainer::validate() {
  const data::Dataset& dataset = *datasets_.back();
  if (dataset.held_out_sets().empty() || options_.eval_rows == 0) return std::nullopt;
  const int64_t rows = std::min(options_.eval_rows, dataset.held_out_sets()[0].rows);
  const int64_t most = options_.micro_batch > 0 ? options_.micro_batch : stages_.back().rows;
  model_->eval();
  Validation result;
  double sum = 0;
  for (int64_t row = 0; row < rows; row += most) {
    const nn::Batch batch =
        data::to_model_batch(dataset.held_out(0, row, std::min(most, rows - row)), device_);
    sum += model_->token_losses(batch).to(torch::kFloat64).sum().item<double>();
    result.targets += target_count(batch);
  }
  if (result.targets == 0) return std::nullopt;
  result.loss = sum / static_cast<double>(result.targets);
  result.perplexity = std::exp(result.loss);
  return result;
}

void Trainer::note_validation() {
  validation_ = validate();
  if (!validation_) return;
  const bool finite = std::isfinite(validation_->loss);
  if (finite && (!position_.best || validation_->loss < position_.best->loss))
    position_.best = {position_.step, validation_->loss};
  if (log_)
    log_->append({{"step", position_.step},
                  {"validation_loss", validation_->loss},
                  {"perplexity", validation_->perplexity}});
  if (events_.on_validation) events_.on_validation(position_.step, *validation_);
}

void Trainer::after_step(const StepReport& report) {
  const int64_t step = position_.step;
  const bool last = finished();
  if (log_ && (last || is_due(step, options_.log_every)))
    log_->append({{"step", step},
                  {"loss", report.loss},
                  {"learning_rate", report.learning_rate},
                  {"gradient_norm", report.gradient_norm},
                  {"tokens", report.tokens},
                  {"seconds", report.seconds},
                  {"tokens_per_second", report.tokens_per_second}});
  if (events_.on_step) events_.on_step(report);
  if (last || is_due(step, options_.eval_every)) note_validation();
  const bool best = position_.best && position_.best->step == step;
  if (last || best || is_due(step, options_.save_every)) save();
}

void Trainer::stop_if_asked() {
  const int signal = events_.signal ? events_.signal() : 0;
  if (signal == 0) return;
  if (position_.step > 0) save();
  throw Interrupted(signal,
                    concat("interrupted at step ", position_.step, "; ", last_saved_text(),
                           events_.command.empty() ? "" : ". To go on:\n  ", events_.command));
}

TrainResult Trainer::run() {
  const int64_t first = position_.step;
  while (!finished()) {
    stop_if_asked();
    after_step(train_step());
  }
  if (!validation_) validation_ = validate();
  return {.step = position_.step,
          .first_step = first,
          .tokens = position_.tokens,
          .seconds = position_.seconds,
          .loss = last_loss_,
          .validation = validation_,
          .best = position_.best};
}

std::string Trainer::last_saved_text() const {
  if (!folder_) return "nothing was saved";
  if (!saved_step_)
    return concat("no checkpoint was written yet in '", folder_->path().string(), "'");
  return concat("the last good checkpoint is '", folder_->checkpoint_path(*saved_step_).string(),
                "'");
}

void Trainer::save() {
  if (!folder_ || saved_step_ == position_.step) return;
  Checkpoint checkpoint;
  checkpoint.state = {{"step", position_.step},
                      {"tokens", position_.tokens},
                      {"seconds", position_.seconds},
                      {"best", nullptr},
                      {"data", data_checksum()},
                      {"seed", options_.seed},
                      {"threads", at::get_num_threads()},
                      {"program", version()},
                      {"torch", TORCH_VERSION},
                      {"method", model_->config().temperature.method},
                      {"settings", folder_->mark()->settings}};
  std::optional<int64_t> best;
  if (position_.best) {
    best = position_.best->step;
    checkpoint.state["best"] = {{"step", *best}, {"loss", position_.best->loss}};
  }
  checkpoint.files = tokenizer_.files;
  checkpoint.files["config.json"] = models::model_config_json(model_->config(), tokenizer_.name);
  checkpoint.model = model_->state();
  checkpoint.optimizer = optimizer_->state();
  try {
    if (log_) log_->sync();
    folder_->save(std::move(checkpoint), position_.step, best, options_.keep);
  } catch (const Error& error) {
    throw Error(concat("step ", position_.step, " cannot be saved: ", error.what(), "; ",
                       last_saved_text(), "; make room and run the same command again"));
  }
  saved_step_ = position_.step;
}

std::string Trainer::data_checksum() const {
  uint64_t sum = 0;
  for (const auto& dataset : datasets_) {
    const data::Batch batch = dataset->train(data::whole_batch(0, 1));
    sum = data::mix64(sum ^ data::checksum(std::as_bytes(std::span(batch.tokens))));
    if (!batch.source.empty())
      sum = data::mix64(sum ^ data::checksum(std::as_bytes(std::span(batch.source))));
  }
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(sum));
  return text.data();
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const Json& state = checkpoint.state;
  TEMPERA_CHECK(state.at("data") == data_checksum(),
                "the data is not the same as when the run in '", folder_->path().string(),
                "' began; bring the old data back, or give another folder with --out");
  model_->load_state(checkpoint.model);
  optimizer_->load_state(checkpoint.optimizer);
  position_ = {.step = state.at("step").get<int64_t>(),
               .tokens = state.at("tokens").get<int64_t>(),
               .seconds = state.at("seconds").get<double>(),
               .best = std::nullopt};
  use_base_of(stage_of(std::max<int64_t>(0, position_.step - 1)));
  // A loss that was not finite is written as null.
  if (const Json& best = state.at("best"); best.is_object() && best.at("loss").is_number())
    position_.best = {best.at("step").get<int64_t>(), best.at("loss").get<double>()};
  saved_step_ = position_.step;
  say(concat("continuing the run in '", folder_->path().string(), "' from step ", position_.step,
             total_steps_ > 0 ? concat(" of ", total_steps_) : ""));
  const int threads = at::get_num_threads();
  if (state.at("threads") != threads)
    say(concat("the run began with ", state.at("threads").dump(), " threads and goes on with ",
               threads, ": the last digits of sums may differ"));
}

void Trainer::attach(RunFolder& folder) {
  folder_ = &folder;
  folder.keep();
  try {
    if (const auto checkpoint =
            folder.newest([&](std::string_view line) { say(std::string(line)); })) {
      restore(*checkpoint);
      const auto& best = position_.best;
      folder.turn_links(position_.step, best ? std::optional(best->step) : std::nullopt);
    }
  } catch (const Json::exception& error) {
    throw Error(concat("the state of the run in '", folder.path().string(),
                       "' is not complete: ", error.what()));
  }
  log_ = std::make_unique<RunLog>(folder.log_path(), position_.step);
}

}  // namespace tempera::train
