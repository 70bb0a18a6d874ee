#include "tempera/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/data/random.h"
#include "tempera/data/tensors.h"
#include "tempera/eval/held_out.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"
#include "tempera/train/divergence.h"
#include "tempera/train/telemetry.h"

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

// The targets, each as much as it counts.
double target_sum(const nn::Batch& batch) {
  const auto counts = batch.targets.ge(0);
  return (batch.shares.defined() ? batch.shares.masked_fill(~counts, 0) : counts)
      .sum()
      .item()
      .toDouble();
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

std::pair<int64_t, int64_t> Trainer::rows_of_rank(int64_t rows) const {
  const int64_t part = world_->rank() / options_.context_ranks;
  return {rows * part / row_parts(), rows * (part + 1) / row_parts()};
}

nn::Batch Trainer::own_batch(nn::Batch batch) const {
  return context_ ? nn::with_own_targets(std::move(batch), context_->share()) : batch;
}

int64_t Trainer::token_count(const nn::Batch& batch) const {
  if (context_ && context_->rank() != 0) return 0;
  return batch.tokens.numel() + (batch.source.defined() ? batch.source.numel() : 0);
}

std::vector<nn::Batch> Trainer::micro_batches(int64_t step) const {
  const PlannedStage& stage = stage_of(step);
  const int64_t most = options_.micro_batch > 0 ? options_.micro_batch : stage.rows;
  const uint64_t dropout_seed =
      data::mix64(data::derive_seed(static_cast<uint64_t>(options_.seed), "train/dropout") +
                  static_cast<uint64_t>(step));
  std::vector<nn::Batch> batches;
  const auto [first, end] = rows_of_rank(stage.rows);
  for (int64_t row = first; row < end; row += most) {
    batches.push_back(batch(step, row, std::min(most, end - row), device_));
    batches.back().dropout_seed = data::mix64(dropout_seed + static_cast<uint64_t>(row));
  }
  return batches;
}

double Trainer::accumulate(const std::vector<nn::Batch>& batches, double targets) {
  model_->train();
  model_->zero_grad();
  if (parallel_) parallel_->begin_gradients();
  double loss = 0;
  for (const auto& batch : batches) {
    // A predicted token counts the same, whichever micro-batch and rank it is in.
    const double weight = targets > 0 ? target_sum(batch) / targets : 0;
    if (parallel_) parallel_->begin_pass(/*last=*/&batch == &batches.back());
    auto part = model_->loss(batch, options_.label_smoothing);
    if (weight != 1) part = part * weight;
    part.backward();
    if (parallel_) parallel_->end_pass();
    loss += part.item<double>();
  }
  return loss;
}

bool Trainer::uses_graph(int64_t step) const {
  const PlannedStage& stage = stage_of(step);
  return world_->alone() && GraphStep::possible(*model_, device_, options_.optimizer) &&
         (options_.micro_batch == 0 || options_.micro_batch >= stage.rows);
}

void Trainer::check_finite(const GraphStep::Result& result, int64_t step) const {
  if (std::isfinite(result.loss) && std::isfinite(result.norm)) return;
  const std::string text =
      concat("step ", step + 1, ": the loss is ", number_text(result.loss),
             " and the norm of the gradients is ", number_text(result.norm), ": ",
             where_it_began(step), "; ", last_saved_text(),
             "; a lower --learning-rate, a longer --warmup or a lower --clip may help, in another "
             "folder");
  // The same words of all ranks are said once.
  throw Diverged(world_->from_first(text));
}

std::string Trainer::where_it_began(int64_t step) const {
  // Ranks that share rows would have to make the same passes, and one may find it before another.
  if (context_) return "where it began is looked for without --context-ranks alone";
  std::string own;
  const auto find = [&] {
    own = find_divergence(*model_, micro_batches(step), options_.label_smoothing);
  };
  parallel_ ? parallel_->with_values(find) : find();
  // The rows of one rank may have it alone.
  for (const auto& found : world_->exchange(own))
    if (!found.empty()) return found;
  return "the pass done again is finite: the fault is not one of the numbers";
}

void Trainer::make_graph() {
  graph_ = std::make_unique<GraphStep>(*model_, optimizer(), options_.optimizer,
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
  auto batches = micro_batches(step);
  std::vector<double> counts = {0, 0};  // tokens, targets
  for (auto& part : batches) {
    counts[0] += static_cast<double>(token_count(part));
    part = own_batch(std::move(part));
    counts[1] += target_sum(part);
  }
  counts = world_->sums(std::move(counts));
  GraphStep::Result result{.tokens = static_cast<int64_t>(counts[0])};
  if (parallel_) parallel_->await_values();
  result.loss = accumulate(batches, counts[1]);
  if (parallel_) {
    parallel_->release_values();
    const auto sums = parallel_->finish_gradients(result.loss);
    result.loss = sums.loss;
    result.norm = std::sqrt(sums.squared_norm);
  } else {
    result.norm = gradient_norm(parameters_);
  }
  check_finite(result, step);
  const double clip = options_.optimizer.clip;
  optimizer().step(
      {.rate = rate, .gradient_scale = clip > 0 && result.norm > clip ? clip / result.norm : 1});
  if (parallel_) parallel_->start_values();
  return result;
}

void Trainer::use_base_of(const PlannedStage& stage) {
  if (model_->config().rope.base == stage.rope_base) return;
  nn::RopeConfig rope = model_->config().rope;
  rope.base = stage.rope_base;
  model_->set_context(model_->config().context, rope);
  feed_.reset();
  graph_.reset();
}

StepReport Trainer::train_step() {
  const int64_t step = position_.step;
  const double spent = progress();
  const double before = position_.seconds;
  const double waited_before = parallel_ ? parallel_->waited() : 0;
  const PlannedStage& stage = stage_of(step);
  const double rate = options_.optimizer.learning_rate * options_.schedule.factor(step, spent);
  GraphStep::Result result;
  {
    const Stopwatch watch(position_.seconds);
    use_base_of(stage);
    result = update(step, rate);
  }
  pace_.add_step(position_.seconds - before, parallel_ ? parallel_->waited() - waited_before : 0);
  // The time decides how ranks go on, too: it is the first rank's.
  position_.seconds = world_->sums({world_->is_first() ? position_.seconds : 0})[0];
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
  if (parallel_) parallel_->await_values();
  model_->eval();
  std::vector<double> sums = {0, 0};  // loss, targets
  const auto [first, end] = rows_of_rank(rows);
  const auto part = [&](int64_t row, int64_t count) {
    return own_batch(data::to_model_batch(dataset.held_out(0, row, count), device_));
  };
  int64_t passes = 0;
  for (int64_t row = first; row < end; row += most, ++passes) {
    const nn::Batch batch = part(row, std::min(most, end - row));
    sums[0] += model_->token_losses(batch).to(torch::kFloat64).sum().item<double>();
    sums[1] += target_sum(batch);
  }
  if (parallel_ && parallel_->passes_together()) {
    const int64_t largest = (rows + row_parts() - 1) / row_parts();
    for (; passes * most < largest; ++passes) model_->token_losses(part(0, 1));
  }
  if (parallel_) parallel_->release_values();
  sums = world_->sums(std::move(sums));
  Validation result{.targets = static_cast<int64_t>(sums[1])};
  if (result.targets == 0) return std::nullopt;
  result.loss = sums[0] / sums[1];
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

Json Trainer::watch() {
  double seconds = 0;
  Json numbers = Json::object();
  {
    const Stopwatch stopwatch(seconds);
    GroupNumbers squares = squared_norms(updated_parameters());
    if (parallel_ && !parallel_->shares_are_whole()) squares = world_->sums(std::move(squares));
    // Where passes are exchanges, every rank has to take part. A row that ranks share may be too
    // long for one of them.
    const bool together = parallel_ && parallel_->passes_together();
    if (!context_ && (world_->is_first() || together)) {
      if (parallel_) parallel_->await_values();
      const int64_t first = rows_of_rank(stage_of(position_.step - 1).rows).first;
      numbers = attention_numbers(*model_, batch(position_.step - 1, first, 1, device_));
      if (parallel_) parallel_->release_values();
    }
    numbers["gradient_norms"] = norms_by_group(squares, parameters_);
  }
  return {{"watched", std::move(numbers)}, {"watch_seconds", seconds}};
}

void Trainer::note_step(const StepReport& report, bool watched) {
  Json line{{"step", report.step},
            {"steps", report.steps > 0 ? Json(report.steps) : Json()},
            {"progress", report.progress},
            {"loss", report.loss},
            {"learning_rate", report.learning_rate},
            {"gradient_norm", report.gradient_norm},
            {"tokens", report.tokens},
            {"seconds", report.seconds},
            {"tokens_per_second", report.tokens_per_second}};
  if (parallel_) line.update(pace_.report(*world_));
  if (watched) line.update(watch());
  if (log_) log_->append(line);
}

void Trainer::after_step(const StepReport& report) {
  const int64_t step = position_.step;
  const bool last = finished();
  const bool watched = options_.watch_every > 0 && (last || is_due(step, options_.watch_every));
  if (saves_ && (last || watched || is_due(step, options_.log_every))) note_step(report, watched);
  if (events_.on_step) events_.on_step(report);
  if (last || is_due(step, options_.eval_every)) note_validation();
  const bool best = position_.best && position_.best->step == step;
  if (last || best || is_due(step, options_.save_every)) save();
}

void Trainer::stop_if_asked() {
  // At the same step in all ranks.
  const int signal = world_->any_signal(events_.signal ? events_.signal() : 0);
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

}  // namespace tempera::train
