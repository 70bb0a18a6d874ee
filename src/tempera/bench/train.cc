#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/gpu.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/peer.h"
#include "tempera/bench/peer_program.h"
#include "tempera/bench/profile.h"
#include "tempera/bench/timing.h"
#include "tempera/config/common.h"
#include "tempera/models/device.h"
#include "tempera/models/tensor_file.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/train/graph_step.h"
#include "tempera/train/optimizer.h"
#include "tempera/train/trainer.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLeastSteps = 3;
constexpr int64_t kCheckedSteps = 2;
// Relative; the second step sees the first one's update.
double loss_tolerance(config::Dtype type) { return type == config::Dtype::kBfloat16 ? 1e-2 : 1e-3; }

struct Place {
  torch::Device device = torch::kCPU;
  config::Dtype type = config::Dtype::kFloat32;
  bool graph = true;  // on a GPU: the step in one graph
};

// A model, its data and its optimizer.
class Training {
 public:
  Training(const nn::ModelConfig& config, int64_t rows, int64_t length, int64_t seed,
           const Place& place)
      : model_(nn::make_model(config, static_cast<uint64_t>(seed))) {
    host_.tokens = torch::randint(config.vocabulary, {rows, length}, torch::kInt64);
    host_.targets = torch::randint(config.vocabulary, {rows, length}, torch::kInt64);
    batch_.tokens = host_.tokens.to(place.device);
    batch_.targets = host_.targets.to(place.device);
    model_->to(place.device);
    if (place.type == config::Dtype::kBfloat16) model_->set_compute_type(torch::kBFloat16);
    parameters_ = model_->parameter_list();
    optimizer_ = train::make_optimizer(options_, parameters_);
    model_->train();
    if (!place.graph || !train::GraphStep::possible(*model_, place.device, options_)) return;
    graph_ = std::make_unique<train::GraphStep>(*model_, *optimizer_, options_,
                                                /*label_smoothing=*/0);
    graph_->load(host_);
  }

  double step() {
    if (graph_) {
      graph_->start(options_.learning_rate);
      graph_->load(host_);
      return graph_->finish().loss;
    }
    model_->zero_grad();
    const auto loss = model_->loss(batch_);
    loss.backward();
    const double norm = train::gradient_norm(parameters_);
    optimizer_->step({.rate = options_.learning_rate,
                      .gradient_scale = norm > options_.clip ? options_.clip / norm : 1});
    return loss.item<double>();
  }

  nn::StateMap weights_and_data() const {
    auto map = model_->state();
    for (auto& [name, tensor] : map) tensor = tensor.cpu();
    map["tokens"] = host_.tokens;
    map["targets"] = host_.targets;
    return map;
  }
  int64_t parameter_count() const { return model_->parameter_count(); }

 private:
  std::shared_ptr<nn::Model> model_;
  nn::Batch host_, batch_;
  train::OptimizerOptions options_;
  std::vector<nn::NamedParameter> parameters_;
  std::unique_ptr<train::Optimizer> optimizer_;
  std::unique_ptr<train::GraphStep> graph_;
};

// What an operator does, by its name and those of autograd's nodes.
std::string part_of(const std::string& name) {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> kParts = {
      {"attention", {"tempera::attention", "AttentionFunction"}},
      {"norm", {"tempera::norm", "AddNormFunction"}},
      {"swiglu", {"tempera::swiglu", "SwigluFunction"}},
      {"split, rotation", {"tempera::split_heads", "tempera::rotary", "SplitFunction", "Rotary"}},
      {"cross-entropy", {"tempera::cross_entropy", "CrossEntropyFunction"}},
      {"optimizer", {"tempera::adamw", "tempera::gradient_norm"}},
      {"matrix products",
       {"aten::mm", "aten::addmm", "aten::matmul", "aten::linear", "tempera::linear",
        "tempera::product", "LinearFunction"}},
  };
  for (const auto& [part, words] : kParts)
    for (const auto& word : words)
      if (name.find(word) != std::string::npos) return part;
  return "rest";
}

class TrainBenchmark final : public Benchmark {
 public:
  TrainBenchmark() {
    model_.vocabulary = 8192;
    model_.mlp_size = 1024;
    model_.temperature.method = "ssa";
  }
  void declare(config::Options& options) override;
  Report run() const override;

 private:
  std::vector<std::string> command(const PeerProgram& program, const std::string& mode,
                                   const std::string& file) const;
  PeerProgram find_program() const;
  Report profile(Training& training) const;
  Report profile_gpu(Training& training) const;
  nn::ModelConfig model_config() const;
  std::string description(int64_t parameters, const std::string& machine) const;
  Report report(const std::vector<Spread>& times, int64_t parameters) const;
  Place place() const { return {models::resolve_device(device_), dtype_, !eager_}; }
  // Of the matrix products and attention in a step.
  double flops(int64_t parameters) const;
  double tokens() const { return static_cast<double>(batch_ * length_); }

  nn::ModelConfig model_;
  int64_t length_ = 512, batch_ = 8;
  std::vector<std::string> peers_;
  PeerProgram program_;
  bool fused_adamw_ = false, profile_ = false;
  config::Device device_ = config::Device::kCpu;
  config::Dtype dtype_ = config::Dtype::kFloat32;
  bool eager_ = false, gpt2_ = false;
  double seconds_ = 30;
  int64_t threads_ = 0, seed_ = 0;
};

void TrainBenchmark::declare(config::Options& options) {
  options.option("layers", model_.layers, config::range(1, 1024), "transformer blocks");
  options.option("width", model_.width, config::range(16, 65536), "hidden size");
  options.option("heads", model_.heads, config::range(1, 4096), "attention heads per layer");
  options.option("mlp-size", model_.mlp_size, config::range(1, 1 << 20), "hidden size of the MLP");
  options.option("vocabulary", model_.vocabulary, config::range(1, 1 << 24), "vocabulary size");
  options.option("length", length_, config::range(1, 1 << 24), "row length in tokens");
  options.option("batch", batch_, config::range(1, 65536), "rows per step");
  options.option("temperature", model_.temperature.method, config::choices({"softmax", "ssa"}),
                 "temperature method");
  options.option("peers", peers_, config::choices({"eager", "compile"}),
                 "PyTorch modes to measure against, in turn");
  config::device_option(options, device_);
  config::dtype_option(options, dtype_);
  options.option("eager", eager_, "on a GPU: our step without a CUDA graph");
  options.option("gpt2", gpt2_,
                 "the GPT-2 architecture (LayerNorm, GELU, learned positions, biases); no peers");
  program_.declare(options);
  options.option("fused-adamw", fused_adamw_,
                 "peers use torch's fused AdamW in place of its default");
  options.option("profile", profile_, "show where the time of our step goes; no peers");
  options.option("seconds", seconds_, config::range(0, 3600),
                 "seconds to measure; every contender runs at least three steps");
  config::threads_option(options, threads_);
  config::seed_option(options, seed_);
}

std::vector<std::string> TrainBenchmark::command(const PeerProgram& program,
                                                 const std::string& mode,
                                                 const std::string& file) const {
  std::vector<std::string> words = {program.python, program.script, "--serve",
                                    file,           "--modes",      mode};
  const auto add = [&](const char* name, int64_t value) {
    words.push_back(std::string("--") + name);
    words.push_back(std::to_string(value));
  };
  add("layers", model_.layers);
  add("width", model_.width);
  add("heads", model_.heads);
  add("mlp-size", model_.mlp_size);
  add("vocabulary", model_.vocabulary);
  add("length", length_);
  add("batch", batch_);
  add("threads", at::get_num_threads());
  words.insert(words.end(), {"--temperature", model_.temperature.method});
  if (place().device.is_cuda()) words.insert(words.end(), {"--device", "cuda"});
  if (dtype_ == config::Dtype::kBfloat16) words.insert(words.end(), {"--dtype", "bf16"});
  if (fused_adamw_) words.emplace_back("--fused-adamw");
  return words;
}

PeerProgram TrainBenchmark::find_program() const {
  if (peers_.empty()) return {};
  if (gpt2_) throw UsageError("the peers are no GPT-2; leave --peers or --gpt2 out");
  if (profile_) throw UsageError("--profile looks at our own step; leave --peers out");
  return find_peer(program_, "torch_train.py", {"torch"});
}

std::string peer_name(const std::string& mode) { return "torch " + mode; }

// The same weights, data and optimizer must give the same losses before anything is timed.
double checked(Training& training, std::vector<std::unique_ptr<Peer>>& peers, double tolerance) {
  double largest = 0;
  for (int64_t step = 0; step < kCheckedSteps; ++step) {
    const double loss = training.step();
    for (const auto& peer : peers) {
      const double other = peer->ask("step").at("loss").get<double>();
      const double error = std::abs(other - loss) / loss;
      TEMPERA_CHECK(error < tolerance, "step ", step + 1, ": loss ", loss, " here and ", other,
                    " in ", peer->name(), ": they do not train the same model");
      largest = std::max(largest, error);
    }
  }
  return largest;
}

Report TrainBenchmark::profile(Training& training) const {
  std::map<std::string, double> parts, names;
  double total = 0;
  int64_t steps = 0;
  for (; steps < kLeastSteps || total < seconds_; ++steps)
    for (const auto& [name, seconds] : operator_seconds([&] { training.step(); })) {
      parts[part_of(name)] += seconds;
      names[name] += seconds;
      total += seconds;
    }
  const auto each = static_cast<double>(steps);
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [part, seconds] : parts) sorted.emplace_back(seconds / each, part);
  std::ranges::sort(sorted, std::greater<>());
  Report report{{{"parts", ordered_json::object()},
                 {"operators", ordered_json::object()},
                 {"step_ms", 1e3 * total / each},
                 {"machine", machine_description()}},
                {}};
  TextTable table({"part of a step", "ms", "share"});
  for (const auto& [seconds, part] : sorted) {
    report.document["parts"][part] = 1e3 * seconds;
    table.add({part, fixed(1e3 * seconds, 1), fixed(100 * seconds * each / total, 1) + " %"});
  }
  table.add({"step", fixed(1e3 * total / each, 1), "100 %"});
  for (const auto& [name, seconds] : names)
    report.document["operators"][name] = 1e3 * seconds / each;
  report.text = table.text();
  return report;
}

Report TrainBenchmark::profile_gpu(Training& training) const {
  constexpr int kSteps = 5;
  for (int64_t step = 0; step < kLeastSteps; ++step) training.step();
  const double step_seconds = gpu_seconds([&] {
                                for (int step = 0; step < kSteps; ++step) training.step();
                              }) /
                              kSteps;
  const auto kernels = kernel_times([&] {
    for (int step = 0; step < kSteps; ++step) training.step();
  });
  std::map<std::string, KernelTime> parts;
  Report report{{{"step_ms", 1e3 * step_seconds},
                 {"parts", ordered_json::object()},
                 {"kernels", ordered_json::array()},
                 {"machine", gpu_description(measure_gpu_ceilings())}},
                {}};
  double busy = 0;
  for (const auto& [name, time] : kernels) {
    KernelTime& part = parts[part_of_kernel(name)];
    part.calls += time.calls;
    part.seconds += time.seconds;
    busy += time.seconds / kSteps;
    report.document["kernels"].push_back({{"name", name.substr(0, 160)},
                                          {"part", part_of_kernel(name)},
                                          {"calls", time.calls / kSteps},
                                          {"ms", 1e3 * time.seconds / kSteps}});
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [part, time] : parts) sorted.emplace_back(time.seconds / kSteps, part);
  std::ranges::sort(sorted, std::greater<>());
  TextTable table({"part of a step", "kernels", "ms", "share"});
  for (const auto& [seconds, part] : sorted) {
    report.document["parts"][part] = 1e3 * seconds;
    table.add({part, std::to_string(parts[part].calls / kSteps), fixed(1e3 * seconds, 2),
               fixed(100 * seconds / step_seconds, 1) + " %"});
  }
  table.add({"between kernels", "", fixed(1e3 * (step_seconds - busy), 2),
             fixed(100 * (1 - busy / step_seconds), 1) + " %"});
  table.add({"step", "", fixed(1e3 * step_seconds, 2), "100 %"});
  report.text = table.text();
  return report;
}

double TrainBenchmark::flops(int64_t parameters) const {
  const auto attention = static_cast<double>(6 * model_.layers * model_.width * length_);
  return (6 * static_cast<double>(parameters) + attention) * tokens();
}

nn::ModelConfig TrainBenchmark::model_config() const {
  auto config = model_;
  config.context = length_;
  if (gpt2_) {
    config.norm = nn::NormKind::kLayer;
    config.activation = nn::Activation::kGeluTanh;
    config.position = nn::PositionKind::kLearned;
    config.attention_bias = nn::AttentionBias::kAll;
    config.mlp_bias = true;
  }
  return config;
}

std::string TrainBenchmark::description(int64_t parameters, const std::string& machine) const {
  return concat(
      "A training step (forward, backward, clipping, AdamW) of a decoder: ", model_.layers,
      " layers, ", model_.width, " wide, ", model_.heads, " heads,\n", gpt2_ ? "GELU " : "SwiGLU ",
      model_.size_of_mlp(), ", vocabulary ", model_.vocabulary, ", ", batch_, " x ", length_,
      " tokens, ", dtype_ == config::Dtype::kBfloat16 ? "bf16, " : "fp32, ",
      model_.temperature.method, ", ", parameters, " parameters, ", machine, ".\n");
}

// The first of the times is ours.
Report TrainBenchmark::report(const std::vector<Spread>& times, int64_t parameters) const {
  const bool on_gpu = place().device.is_cuda();
  const GpuCeilings ceilings = on_gpu ? measure_gpu_ceilings() : GpuCeilings{};
  Report report{{{"rows", ordered_json::array()},
                 {"machine", on_gpu ? gpu_description(ceilings) : machine_description()}},
                {}};
  TextTable table({"", "step ms", "quartiles", "tokens/s", "TFLOP/s", "ours is faster by"});
  const int digits = on_gpu ? 2 : 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const std::string name = i == 0 ? "tempera" : peer_name(peers_[i - 1]);
    const double ratio = times[i].median / times[0].median;
    const double rate = flops(parameters) / times[i].median;
    report.document["rows"].push_back({{"name", name},
                                       {"step_ms", 1e3 * times[i].median},
                                       {"lower_ms", 1e3 * times[i].lower},
                                       {"upper_ms", 1e3 * times[i].upper},
                                       {"steps", times[i].runs},
                                       {"tokens_per_second", tokens() / times[i].median},
                                       {"flops", rate},
                                       {"ratio", ratio}});
    table.add({name, fixed(1e3 * times[i].median, digits),
               fixed(1e3 * times[i].lower, digits) + "-" + fixed(1e3 * times[i].upper, digits),
               fixed(tokens() / times[i].median, 0), fixed(rate / 1e12, 2),
               i == 0 ? "" : fixed(ratio, 2) + "x"});
  }
  const std::string machine =
      on_gpu ? gpu_text(ceilings) : concat(at::get_num_threads(), " threads");
  report.text = description(parameters, machine) + "\n" + table.text();
  return report;
}

Report TrainBenchmark::run() const {
  const auto program = find_program();
  models::use_threads(threads_);
  torch::manual_seed(static_cast<uint64_t>(seed_));
  Training training(model_config(), batch_, length_, seed_, place());
  if (profile_) {
    training.step();
    return place().device.is_cuda() ? profile_gpu(training) : profile(training);
  }
  const TempFolder folder;
  const auto file = folder.path() / "start.safetensors";
  models::write_tensors(file, training.weights_and_data());
  Progress progress("bench", 0, "steps");
  std::vector<std::unique_ptr<Peer>> peers;
  for (const auto& mode : peers_) {
    progress.update(0, "starting " + peer_name(mode));
    peers.push_back(std::make_unique<Peer>(peer_name(mode), command(program, mode, file.string())));
    peers.back()->read();
  }
  const double error = checked(training, peers, loss_tolerance(dtype_));

  // A peer times itself, so that talking to it does not count; that is microseconds of seconds.
  int64_t steps = 0;
  std::vector<std::function<void()>> contenders = {[&] {
    training.step();
    progress.update(++steps, "steps of each");
  }};
  for (const auto& peer : peers) contenders.emplace_back([&] { peer->ask("step"); });
  const auto times = time_in_turn(contenders, seconds_, kLeastSteps);
  progress.finish();
  Report result = report(times, training.parameter_count());
  result.document["parameters"] = training.parameter_count();
  result.document["loss_error"] = error;
  if (!peers.empty())
    result.text +=
        concat("\nIn turn, from the same weights; the losses agree to ", scientific(error), ".\n");
  return result;
}

}  // namespace

std::shared_ptr<Benchmark> make_train_benchmark() { return std::make_shared<TrainBenchmark>(); }

}  // namespace tempera::bench
