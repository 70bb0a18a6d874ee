#include "tempera/train/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tempera/ops/torch.h"
#include "tempera/train/plan.h"

namespace tempera::train {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;
// Of parameters, gradients and moments.
constexpr double kFull = 4;
// Buckets of gradients that are there at once: two on their way, one that fills.
constexpr size_t kFilled = 3;

double real(int64_t value) { return static_cast<double>(value); }

double size_of(config::Dtype dtype) { return dtype == config::Dtype::kBfloat16 ? 2 : kFull; }

// Numbers of an attention and an MLP.
struct Widths {
  explicit Widths(const nn::ModelConfig& model)
      : width(real(model.width)),
        query(real(model.heads * model.size_of_head())),
        key_value(2 * real(model.kv_head_count() * model.size_of_head())),
        mlp(real(model.size_of_mlp())),
        mlp_in(nn::is_gated(model.activation) ? 2 * mlp : mlp) {}
  double width, query, key_value, mlp, mlp_in;
};

int64_t block_count(const nn::ModelConfig& model) {
  return model.layers + (model.kind == nn::ModelKind::kEncoderDecoder ? model.decoder_layers : 0);
}

// What a block keeps of a token: both sums and norms, the projection, the attention's rows, and the
// MLP's on both sides of the activation.
double kept_by_block(const nn::ModelConfig& model) {
  const Widths w(model);
  return 4 * w.width + 2 * w.query + w.key_value + w.mlp_in + w.mlp;
}

// What is there beside that while a block goes back, at its MLP: the gradients of the sum and of
// the activation's rows.
double way_back_of_block(const nn::ModelConfig& model) {
  const Widths w(model);
  return 2 * w.width + w.mlp;
}

double elements_of(const std::vector<BucketPlan>& plans) {
  double sum = 0;
  for (const BucketPlan& plan : plans) sum += real(plan.length);
  return sum;
}

// Numbers of the optimizer for each of the parameter's.
double state_of(const nn::NamedParameter& parameter, OptimizerKind optimizer) {
  if (optimizer == OptimizerKind::kSgd) return 1;
  return optimizer == OptimizerKind::kMuon && is_hidden_matrix(parameter) ? 1 : 2;
}

double state_bytes(const std::vector<nn::NamedParameter>& parameters,
                   const std::vector<BucketPlan>& plans, bool shared, int64_t ranks,
                   OptimizerKind optimizer) {
  std::vector<double> of_rank(static_cast<size_t>(shared ? ranks : 1));
  for (const BucketPlan& plan : plans) {
    const int64_t part = plan.length / std::ssize(of_rank);
    for (const Place& place : plan.places) {
      const double each = kFull * state_of(parameters[place.parameter], optimizer);
      for (int64_t rank = place.begin / part; rank * part < place.begin + place.length; ++rank) {
        const int64_t from = std::max(place.begin, rank * part);
        const int64_t to = std::min(place.begin + place.length, (rank + 1) * part);
        of_rank[static_cast<size_t>(rank)] += each * real(to - from);
      }
    }
  }
  return std::ranges::max(of_rank);
}

// The values of what is in no block, and of the two largest neighbours; -1 stands behind all.
double gathered_elements(const std::vector<BucketPlan>& plans) {
  std::vector<double> blocks;
  double rest = 0;
  for (const BucketPlan& plan : plans) {
    if (plan.block < 0) {
      rest += real(plan.length);
      continue;
    }
    blocks.resize(std::max(blocks.size(), static_cast<size_t>(plan.block) + 1));
    blocks[static_cast<size_t>(plan.block)] += real(plan.length);
  }
  double most = blocks.empty() ? 0 : blocks[0];
  for (size_t i = 1; i < blocks.size(); ++i) most = std::max(most, blocks[i] + blocks[i - 1]);
  return rest + most;
}

double filled_elements(const std::vector<BucketPlan>& plans, Sharding sharding) {
  double rest = 0, most = 0, now = 0;
  std::vector<double> lengths;
  for (const BucketPlan& plan : plans) {
    if (sharding == Sharding::kAll && plan.block < 0)
      rest += real(plan.length);
    else
      lengths.push_back(real(plan.length));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    now += lengths[i] - (i >= kFilled ? lengths[i - kFilled] : 0);
    most = std::max(most, now);
  }
  return rest + most;
}

// Weights of products with every row, of the blocks and of the output.
struct Products {
  double blocks = 0, output = 0;
};
Products products_of(const nn::Model& model, const std::vector<nn::NamedParameter>& parameters) {
  Products sum{.output = real(model.output_weight().numel())};
  for (const auto& parameter : parameters)
    if (is_hidden_matrix(parameter)) sum.blocks += real(parameter.tensor.numel());
  return sum;
}

// Multiplications and additions of a forward pass of a token in the attentions: with the keys that
// it sees on average, and with their values.
double attention_flops(const nn::ModelConfig& model, double length) {
  double sum = 0;
  for (int64_t layer = 0; layer < block_count(model); ++layer) {
    const auto window = model.attention_window(layer);
    const double causal = model.kind == nn::ModelKind::kEncoder ? length : length / 2;
    const double keys = window ? std::min(real(*window), causal) : causal;
    sum += 4 * Widths(model).query * keys;
  }
  return sum;
}

// What a rank sends, and when.
struct Traffic {
  double forward = 0, backward = 0;  // hidden behind these passes, as far as they last
  double after = 0;                  // behind the update, when nothing is computed
  double total() const { return forward + backward + after; }
};

Traffic traffic(const std::vector<BucketPlan>& plans, Sharding sharding, int64_t ranks,
                double passes) {
  // Of every rank's part to all, or of sums to their rank.
  const double once = kFull * elements_of(plans) * real(ranks - 1) / real(ranks);
  double rest = 0, last = 0;
  int64_t last_block = -1;
  for (const BucketPlan& plan : plans) last_block = std::max(last_block, plan.block);
  for (const BucketPlan& plan : plans) {
    const double bytes = kFull * real(plan.length) * real(ranks - 1) / real(ranks);
    if (plan.block < 0) rest += bytes;
    if (plan.block == last_block) last += bytes;
  }
  switch (sharding) {
    case Sharding::kNone:
      return {.backward = 2 * once};
    case Sharding::kOptimizer:
      return {.backward = once, .after = once};
    case Sharding::kGradients:
      return {.backward = passes * once, .after = once};
    case Sharding::kAll:
      break;
  }
  // The way back begins with the last block, whose values are still there.
  return {.forward = rest + passes * (once - rest),
          .backward = passes * (once + (once - rest - last))};
}

struct Step {
  double tokens = 0;  // of a rank in a step
  double pass_tokens = 0;
  double passes = 1;
  double length = 0;
  double sharers = 1;  // ranks that have the same rows
};

// Of the stage that needs the most.
Step step_of(const nn::Model& model, const TrainOptions& options, int64_t ranks) {
  Step step;
  for (const PlannedStage& stage : plan_stages(options, model.config())) {
    const double sharers = real(options.context_ranks);
    const double rows = std::ceil(real(stage.rows) * sharers / real(ranks));
    const double at_once =
        options.micro_batch > 0 ? std::min(rows, real(options.micro_batch)) : rows;
    const Step next{.tokens = rows * real(stage.length) / sharers,
                    .pass_tokens = at_once * real(stage.length) / sharers,
                    .passes = std::ceil(rows / at_once),
                    .length = real(stage.length),
                    .sharers = sharers};
    if (next.length > step.length) step = next;
  }
  return step;
}

// The keys and values of whole rows, of one layer in one pass.
double lent_bytes(const nn::ModelConfig& model, const Step& step, config::Dtype dtype) {
  if (step.sharers == 1) return 0;
  return size_of(dtype) * Widths(model).key_value * step.pass_tokens * step.sharers;
}

// They come to all ranks of the rows, on the way back once more, and their gradients go to their
// ranks. Nothing is computed meanwhile.
double lent_traffic(const nn::ModelConfig& model, const Step& step, config::Dtype dtype,
                    bool recompute) {
  const double times = recompute ? 4 : 3;
  return times * step.passes * real(block_count(model)) * lent_bytes(model, step, dtype) *
         (step.sharers - 1) / step.sharers;
}

void set_times(Forecast& forecast, const Products& products, const nn::ModelConfig& model,
               const Step& step, const Traffic& sent, const Cluster& cluster) {
  const double blocks = 2 * products.blocks + attention_flops(model, step.length);
  const double forward = (blocks + 2 * products.output) * step.tokens / (cluster.flops * kTera);
  const double again = forecast.recompute ? blocks * step.tokens / (cluster.flops * kTera) : 0;
  const double backward = 2 * forward + again;
  const double link = cluster.link * kGiga;
  forecast.sent = sent.total();
  forecast.compute_seconds = forward + backward;
  forecast.link_seconds = sent.total() / link;
  forecast.seconds = std::max(forward, sent.forward / link) +
                     std::max(backward, sent.backward / link) + sent.after / link;
  if (forecast.memory.total() > cluster.memory * kGiga)
    forecast.bound = Bound::kMemory;
  else if (forecast.seconds > 2 * forecast.compute_seconds)
    forecast.bound = Bound::kLink;
}

}  // namespace

void Cluster::declare(config::Options& options) {
  const config::Attributes asked{
      .once = true, .rare = true, .section = config::Section::kComputing};
  options.option("plan-memory", memory, config::above_to(0, 1e6),
                 "--plan: memory of one GPU, in GB", asked);
  options.option("plan-flops", flops, config::above_to(0, 1e6),
                 "--plan: TFLOP/s that a GPU sustains in training", asked);
  options.option("plan-link", link, config::above_to(0, 1e6),
                 "--plan: GB/s that a rank sends to the others", asked);
}

KeptBytes kept_bytes(const std::vector<nn::NamedParameter>& parameters,
                     const std::vector<BucketPlan>& plans, Sharding sharding, int64_t ranks,
                     OptimizerKind optimizer) {
  const double whole = kFull * elements_of(plans), part = whole / real(ranks);
  return {
      .weights = sharding == Sharding::kAll ? part : whole,
      .gradients = sharding >= Sharding::kGradients ? part : whole,
      .optimizer = state_bytes(parameters, plans, sharding != Sharding::kNone, ranks, optimizer)};
}

double activation_bytes(const nn::ModelConfig& model, double tokens, config::Dtype dtype,
                        bool recompute) {
  const double blocks = real(block_count(model)), width = real(model.width);
  const double kept = kept_by_block(model), back = way_back_of_block(model);
  // The embedding and the last norm.
  const double ends = 3 * width;
  const double rows = recompute ? ends + blocks * width + kept + back : ends + blocks * kept + back;
  // The logarithms of the attention's sums, and the numbers of the norms, are kept in full.
  const double numbers = (recompute ? 1 : blocks) * (real(model.heads) + 4);
  return tokens * (size_of(dtype) * rows + kFull * numbers);
}

double output_bytes(const nn::ModelConfig& model, double tokens, config::Dtype dtype,
                    config::Device device) {
  // The logits are computed in parts: for the cache of a CPU, or in few large ones on a GPU.
  constexpr double kOfCpu = 4 << 20, kLeastRows = 512, kOfGpu = 1 << 29;
  const double classes = std::max(real(model.output_count()), 1.0), size = size_of(dtype);
  double rows =
      device == config::Device::kCpu ? std::max(kOfCpu / classes, kLeastRows) : kOfGpu / classes;
  rows = std::min(rows, tokens);
  // A cap is no part of that.
  if (model.logit_cap > 0) return tokens * classes * (size + 2 * kFull);
  return size * (rows * classes + real(model.width) * (tokens + classes));
}

double matrix_elements(const nn::ModelConfig& model) {
  const Widths w(model);
  const double block = w.width * (2 * w.query + w.key_value) + w.width * (w.mlp_in + w.mlp);
  return real(block_count(model)) * block +
         w.width * real(model.vocabulary + (model.tied_embeddings ? 0 : model.output_count()));
}

std::vector<Forecast> forecasts(const nn::Model& model, const TrainOptions& options,
                                const Cluster& cluster) {
  const nn::ModelConfig& config = model.config();
  const auto parameters = model.parameter_list();
  const Products products = products_of(model, parameters);
  const OptimizerKind optimizer = options.optimizer.kind;
  const Step step = step_of(model, options, cluster.ranks);
  const bool copied = options.dtype != config::Dtype::kFloat32;
  std::vector<Sharding> shardings = {Sharding::kNone};
  if (cluster.ranks > 1)
    shardings.insert(shardings.end(), {Sharding::kOptimizer, Sharding::kGradients, Sharding::kAll});
  std::vector<Forecast> all;
  for (const Sharding sharding : shardings)
    for (const bool recompute : {false, true}) {
      const auto plans = plan_buckets(
          parameters, bucket_options(model, parameters, sharding, cluster.ranks, optimizer));
      const auto kept = kept_bytes(parameters, plans, sharding, cluster.ranks, optimizer);
      Forecast next{.sharding = sharding, .recompute = recompute};
      next.memory = {
          .weights = kept.weights,
          .gradients = kept.gradients,
          .optimizer = kept.optimizer,
          .activations = activation_bytes(config, step.pass_tokens, options.dtype, recompute),
          .outputs = output_bytes(config, step.pass_tokens, options.dtype, options.device)};
      // Whole, their gradients, and one of them as it is sent.
      next.memory.buckets += 3 * lent_bytes(config, step, options.dtype);
      if (copied)
        next.memory.copies =
            size_of(options.dtype) *
            (products.output +
             products.blocks / (recompute ? std::max(1.0, real(block_count(config))) : 1));
      if (sharding >= Sharding::kGradients)
        next.memory.buckets += kFull * filled_elements(plans, sharding);
      if (sharding == Sharding::kAll) next.memory.buckets += kFull * gathered_elements(plans);
      Traffic sent = traffic(plans, sharding, cluster.ranks, step.passes);
      sent.after += lent_traffic(config, step, options.dtype, recompute);
      set_times(next, products, config, step, sent, cluster);
      all.push_back(next);
    }
  return all;
}

const Forecast* recommended(const std::vector<Forecast>& all) {
  // Times are no better known than that.
  constexpr double kAsFast = 1.05;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Forecast& one : all)
    if (one.bound != Bound::kMemory) fastest = std::min(fastest, one.seconds);
  const auto cost = [](const Forecast& one) { return std::pair(one.sent, one.memory.total()); };
  const Forecast* best = nullptr;
  for (const Forecast& one : all)
    if (one.bound != Bound::kMemory && one.seconds <= kAsFast * fastest &&
        (!best || cost(one) < cost(*best)))
      best = &one;
  return best;
}

}  // namespace tempera::train
