#include "tempera/train/options.h"

#include <algorithm>

#include "tempera/base/error.h"

namespace tempera::train {
namespace {

constexpr int64_t kDefaultSteps = 1000;

void declare_budget(TrainOptions& o, config::Options& options, bool with_seconds) {
  options.section(config::Section::kTraining);
  options.option("steps", o.steps, config::range(0, 1e12),
                 "training steps; 0: 1000, unless tokens, seconds or stages set the budget");
  options.option("tokens", o.tokens, config::range(0, 1e15), "token budget; 0: none");
  if (with_seconds)
    options.option("seconds", o.seconds, config::range(0, 1e9), "time budget in seconds; 0: none");
  options.option("batch", o.batch, config::range(1, 1e6),
                 "rows per step; with --stages, rows of the longest stage");
  options.option("micro-batch", o.micro_batch, config::range(0, 1e6),
                 "rows per forward pass (gradient accumulation saves memory); 0: the whole batch");
  options.option("stages", o.stages,
                 "stages of growing context length, each LENGTH:TOKENS or LENGTH:TOKENS:ROPE_BASE; "
                 "every step has the same number of tokens",
                 {.rare = true});
}

void declare_running(TrainOptions& o, config::Options& options) {
  const config::Attributes local{.local = true};
  const config::Attributes rare{.local = true, .rare = true};
  options.option("eval-every", o.eval_every, config::range(0, 1e12),
                 "steps between validations; 0: only at the end", local);
  options.option("eval-rows", o.eval_rows, config::range(0, 1e9),
                 "held-out rows per validation, at most; 0: none", rare);
  options.option("save-every", o.save_every, config::range(0, 1e12),
                 "steps between checkpoints; 0: only at the end", local);
  options.option("keep", o.keep, config::range(1, 1e6), "checkpoints to keep, besides the best",
                 rare);
  options.option("log-every", o.log_every, config::range(1, 1e12),
                 "steps between lines of log.jsonl", rare);
  options.option(
      "watch", o.watch_every, config::range(0, 1e12),
      "steps between diagnostics (entropy, logits, temperature, gradients) in log.jsonl; "
      "0: none",
      rare);
  config::device_option(options, o.device);
}

}  // namespace

Stage parse_stage(const std::string& text) {
  const auto part = [&](size_t begin) { return text.find(':', begin); };
  const size_t first = part(0);
  const size_t second = first == std::string::npos ? first : part(first + 1);
  const std::string what = concat("--stages: '", text, "'");
  if (first == std::string::npos)
    throw UsageError(concat(what,
                            " given; LENGTH:TOKENS or LENGTH:TOKENS:ROPE_BASE expected, such "
                            "as 512:10000000"));
  const auto number = [&](size_t begin, size_t end, config::Kind kind, const config::Domain& in) {
    return config::parse_text(what, text.substr(begin, end - begin), kind, in);
  };
  Stage stage;
  stage.length = std::get<int64_t>(number(0, first, config::Kind::kInt, config::range(1, 1e9)));
  const size_t end = std::min(second, text.size());
  stage.tokens =
      std::get<int64_t>(number(first + 1, end, config::Kind::kInt, config::range(1, 1e15)));
  if (second != std::string::npos)
    stage.rope_base = std::get<double>(
        number(second + 1, text.size(), config::Kind::kReal, config::above_to(1, 1e12)));
  return stage;
}

void TrainOptions::declare(config::Options& options, bool with_seconds) {
  declare_budget(*this, options, with_seconds);
  optimizer.declare(options);
  schedule.declare(options);
  options.option("label-smoothing", label_smoothing, config::range(0, 0.999), "label smoothing",
                 {.rare = true});
  options.option("recompute", recompute, "activation checkpointing: less memory, more time");
  config::dtype_option(options, dtype);
  config::seed_option(options, seed);
  declare_running(*this, options);
}

void TrainOptions::declare_ranks(config::Options& options) {
  static const config::EnumChoices<Sharding> kShardings{{{"none", Sharding::kNone},
                                                         {"optimizer", Sharding::kOptimizer},
                                                         {"gradients", Sharding::kGradients},
                                                         {"all", Sharding::kAll}}};
  options.option("shard", sharding, kShardings, "what to shard across ranks, to save memory",
                 {.local = true, .section = config::Section::kComputing});
  declare_context_ranks(options, context_ranks);
}

void TrainOptions::declare_context_ranks(config::Options& options, int64_t& ranks) {
  options.option("context-ranks", ranks, config::range(1, 4096),
                 "ranks that share the tokens of each row (context parallelism)",
                 {.local = true, .section = config::Section::kComputing});
}

void TrainOptions::validate() const {
  if (micro_batch > batch)
    throw UsageError(
        concat("--micro-batch: ", micro_batch, " rows given, a step has only ", batch));
  stage_list();
}

std::vector<Stage> TrainOptions::stage_list() const {
  std::vector<Stage> list;
  for (const auto& text : stages) list.push_back(parse_stage(text));
  return list;
}

int64_t TrainOptions::step_budget() const {
  if (steps > 0 || tokens > 0 || seconds > 0 || !stages.empty()) return steps;
  return kDefaultSteps;
}

TrainOptions task_training() {
  TrainOptions options;
  options.device = config::Device::kCpu;  // the models are too small to keep a GPU busy
  options.steps = 300;
  options.batch = 32;
  options.optimizer.learning_rate = 1e-2;
  options.optimizer.beta2 = 0.98;
  options.optimizer.decay = 0.01;
  options.schedule.warmup = 50;
  options.schedule.floor = 0;
  return options;
}

}  // namespace tempera::train
