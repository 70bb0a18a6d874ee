#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/attention_gpu.h"
#include "tempera/bench/attention_pair.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/memory.h"
#include "tempera/bench/timing.h"
#include "tempera/config/common.h"
#include "tempera/kernels/reference/cases.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/train/trainer.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLeastRuns = 3;

struct Measurement {
  AttentionShape shape;
  std::string method;
  double error = 0;
  Spread forward[2], step[2];  // by Side
  int64_t extra_bytes[2] = {};
  std::optional<double> over_plain;

  const Spread& forward_of(Side side) const { return forward[static_cast<size_t>(side)]; }
  const Spread& step_of(Side side) const { return step[static_cast<size_t>(side)]; }
  double forward_gflops(Side side) const {
    return shape.forward_flops() / forward_of(side).median / 1e9;
  }
  double step_gflops(Side side) const { return shape.step_flops() / step_of(side).median / 1e9; }
  double forward_ratio() const {
    return forward_of(Side::kTorch).median / forward_of(Side::kOurs).median;
  }
  double step_ratio() const { return step_of(Side::kTorch).median / step_of(Side::kOurs).median; }
};

// The shapes of the kernels' own list of cases are the default.
std::vector<int64_t> case_values(int64_t kernels::Shape::*member) {
  std::set<int64_t> values;
  for (const auto& example : kernels::bench_cases())
    if (!example.decodes()) values.insert(example.shape.*member);
  return {values.begin(), values.end()};
}

class AttentionBenchmark final : public Benchmark {
 public:
  void declare(config::Options& options) override;
  Report run() const override;

 private:
  std::vector<AttentionShape> shapes() const;
  std::vector<Measurement> measure(const AttentionShape& shape) const;
  void time(const std::vector<AttentionPair>& pairs, std::vector<Measurement>& rows) const;

  std::vector<std::string> methods_ = {"softmax", "focal", "ssa"};
  std::vector<int64_t> lengths_, sizes_, batches_ = {0}, heads_ = {8};
  int64_t kv_heads_ = 0;
  bool memory_ = false;
  config::Device device_ = config::Device::kCpu;
  RunSettings run_{.dtypes = {"fp32"}};
};

void AttentionBenchmark::declare(config::Options& options) {
  options.option("memory", memory_,
                 "report the peak memory of one step at growing lengths; no timing");
  if (lengths_.empty())
    lengths_ =
        memory_ ? std::vector<int64_t>{4096, 8192, 16384} : case_values(&kernels::Shape::q_rows);
  if (sizes_.empty())
    sizes_ = memory_ ? std::vector<int64_t>{64} : case_values(&kernels::Shape::qk_size);
  options.option("methods", methods_, "temperature methods; a product is head+value");
  options.option("length", lengths_, config::range(1, 1 << 24), "sequence lengths T");
  options.option("head-size", sizes_, config::range(16, 256), "head sizes D");
  options.option("heads", heads_, config::range(1, 4096), "attention heads H");
  options.option("kv-heads", kv_heads_, config::range(0, 4096),
                 "key-value heads; 0: as many as heads");
  options.option("batch", batches_, config::range(0, 65536),
                 "batch sizes B; 0: 1024 / T, at least 1");
  config::device_option(options, device_);
  run_.declare(options);
}

std::vector<AttentionShape> AttentionBenchmark::shapes() const {
  std::vector<AttentionShape> list;
  for (const auto& dtype : run_.dtypes)
    for (const int64_t size : sizes_)
      for (const int64_t heads : heads_)
        for (const int64_t length : lengths_)
          for (const int64_t batch : batches_)
            list.push_back({.batch = batch > 0 ? batch : std::max<int64_t>(1, 1024 / length),
                            .heads = heads,
                            .kv_heads = kv_heads_ > 0 ? kv_heads_ : heads,
                            .length = length,
                            .size = size,
                            .type = type_of(dtype)});
  for (const auto& shape : list) shape.check();
  if (list.empty() || methods_.empty())
    throw UsageError("there is nothing to measure: a list of shapes or methods is empty");
  return list;
}

// All methods of a shape take turns, so that they can be compared with each other too.
std::vector<Measurement> AttentionBenchmark::measure(const AttentionShape& shape) const {
  const auto inputs = AttentionPair::make_inputs(shape);
  std::vector<AttentionPair> pairs;
  std::vector<Measurement> rows;
  for (const auto& method : methods_) {
    pairs.emplace_back(shape, inputs, method);
    auto& row = rows.emplace_back();
    row.shape = shape;
    row.method = method;
    if (!memory_) row.error = pairs.back().check();
    for (const Side side : {Side::kOurs, Side::kTorch})
      row.extra_bytes[static_cast<size_t>(side)] = peak_bytes([&] { pairs.back().step(side); });
  }
  if (!memory_) time(pairs, rows);
  return rows;
}

void AttentionBenchmark::time(const std::vector<AttentionPair>& pairs,
                              std::vector<Measurement>& rows) const {
  std::vector<std::function<void()>> forwards, steps;
  for (const auto& pair : pairs)
    for (const Side side : {Side::kOurs, Side::kTorch}) {
      forwards.emplace_back([&pair, side] {
        const torch::NoGradGuard no_grad;
        pair.forward(side);
      });
      steps.emplace_back([&pair, side] { pair.step(side); });
    }
  // A step is 3.5 times as long; a quarter of the time is as many forward passes, nearly.
  const double seconds = run_.seconds * static_cast<double>(pairs.size());
  const auto forward = time_in_turn(forwards, 0.25 * seconds, kLeastRuns);
  const auto step = time_in_turn(steps, 0.75 * seconds, kLeastRuns);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const size_t side : {0U, 1U}) {
      rows[i].forward[side] = forward[2 * i + side];
      rows[i].step[side] = step[2 * i + side];
    }
  }
  const auto plain =
      std::ranges::find_if(rows, [](const auto& row) { return row.method == "softmax"; });
  if (plain == rows.end()) return;
  for (auto& row : rows)
    row.over_plain = row.step_of(Side::kOurs).median / plain->step_of(Side::kOurs).median;
}

ordered_json spread_json(const Spread& spread) {
  return {{"min", 1e3 * spread.min},
          {"lower", 1e3 * spread.lower},
          {"median", 1e3 * spread.median},
          {"upper", 1e3 * spread.upper},
          {"runs", spread.runs}};
}

ordered_json shape_json(const Measurement& row) {
  return {{"method", row.method},
          {"dtype", type_name(row.shape.type)},
          {"B", row.shape.batch},
          {"H", row.shape.heads},
          {"kv_heads", row.shape.kv_heads},
          {"T", row.shape.length},
          {"D", row.shape.size},
          {"extra_bytes", row.extra_bytes[0]},
          {"torch_extra_bytes", row.extra_bytes[1]}};
}

ordered_json row_json(const Measurement& row, double ceiling) {
  auto json = shape_json(row);
  json.update({{"forward_ms", 1e3 * row.forward_of(Side::kOurs).median},
               {"torch_forward_ms", 1e3 * row.forward_of(Side::kTorch).median},
               {"forward_ratio", row.forward_ratio()},
               {"forward_gflops", row.forward_gflops(Side::kOurs)},
               {"step_ms", 1e3 * row.step_of(Side::kOurs).median},
               {"torch_step_ms", 1e3 * row.step_of(Side::kTorch).median},
               {"step_ratio", row.step_ratio()},
               {"step_gflops", row.step_gflops(Side::kOurs)},
               {"torch_step_gflops", row.step_gflops(Side::kTorch)},
               {"ceiling_share", row.step_gflops(Side::kOurs) / ceiling},
               {"max_error", row.error}});
  json["over_plain"] = row.over_plain ? ordered_json(*row.over_plain) : ordered_json(nullptr);
  json["spread_ms"] = {{"forward", spread_json(row.forward_of(Side::kOurs))},
                       {"torch_forward", spread_json(row.forward_of(Side::kTorch))},
                       {"step", spread_json(row.step_of(Side::kOurs))},
                       {"torch_step", spread_json(row.step_of(Side::kTorch))}};
  return json;
}

// "12.3 (12.1-12.6)": median and quartiles in milliseconds.
std::string spread_text(const Spread& spread) {
  const int digits = spread.median < 0.01 ? 2 : 1;
  return concat(fixed(1e3 * spread.median, digits), " (", fixed(1e3 * spread.lower, digits), "-",
                fixed(1e3 * spread.upper, digits), ")");
}

std::string timed_table(const std::vector<Measurement>& rows, double ceiling) {
  TextTable table({"method", "dtype", "B", "H", "T", "D", "forward ms", "torch", "ratio", "step ms",
                   "torch", "ratio", "GFLOP/s", "ceiling", "/plain", "memory", "torch", "error"});
  for (const auto& row : rows) {
    table.add({row.method, type_name(row.shape.type), std::to_string(row.shape.batch),
               std::to_string(row.shape.heads), std::to_string(row.shape.length),
               std::to_string(row.shape.size), spread_text(row.forward_of(Side::kOurs)),
               spread_text(row.forward_of(Side::kTorch)), fixed(row.forward_ratio(), 2) + "x",
               spread_text(row.step_of(Side::kOurs)), spread_text(row.step_of(Side::kTorch)),
               fixed(row.step_ratio(), 2) + "x", fixed(row.step_gflops(Side::kOurs), 0),
               fixed(100 * row.step_gflops(Side::kOurs) / ceiling, 0) + " %",
               row.over_plain ? fixed(*row.over_plain, 3) : "", megabytes(row.extra_bytes[0]),
               megabytes(row.extra_bytes[1]), scientific(row.error)});
  }
  return table.text();
}

std::string memory_table(const std::vector<Measurement>& rows) {
  TextTable table(
      {"method", "dtype", "B", "H", "T", "D", "memory of a step", "bytes / row", "torch"});
  for (const auto& row : rows)
    table.add({row.method, type_name(row.shape.type), std::to_string(row.shape.batch),
               std::to_string(row.shape.heads), std::to_string(row.shape.length),
               std::to_string(row.shape.size), megabytes(row.extra_bytes[0]),
               std::to_string(row.extra_bytes[0] / (row.shape.batch * row.shape.length)),
               megabytes(row.extra_bytes[1])});
  return table.text();
}

Report memory_report(const std::vector<Measurement>& rows) {
  Report report{{{"rows", ordered_json::array()}, {"machine", machine_description()}}, {}};
  for (const auto& row : rows) report.document["rows"].push_back(shape_json(row));
  report.text =
      "The most that a step (forward and backward) holds beside its inputs: outputs, "
      "gradients, workspaces.\n\n" +
      memory_table(rows);
  return report;
}

Report timed_report(const std::vector<Measurement>& rows, double ceiling) {
  auto machine = machine_description();
  ReadSweep sweep;
  sweep.run();
  const std::vector<std::function<void()>> sweeps = {[&] { sweep.run(); }, [&] { sweep.copy(); }};
  const auto times = time_in_turn(sweeps, 0, 5);
  machine["matmul_gflops"] = ceiling;
  machine["read_gbps"] = sweep.gbps(times[0].median);
  machine["copy_gbps"] = sweep.gbps(times[1].median);
  Report report{{{"rows", ordered_json::array()}, {"machine", machine}}, {}};
  for (const auto& row : rows) report.document["rows"].push_back(row_json(row, ceiling));
  report.text = concat(
      "Causal attention with its temperature computed, against torch ", TORCH_VERSION,
      "'s scaled_dot_product_attention with\nthe same temperature written in torch. ",
      machine["processor"].get<std::string>(), ", ", machine["isa"].get<std::string>(), ", ",
      at::get_num_threads(), " threads, matmul ceiling ", fixed(ceiling, 0), " GFLOP/s, reads ",
      fixed(sweep.gbps(times[0].median), 1),
      " GB/s.\nMedians and quartiles; a ratio above 1: ours is faster. GFLOP/s, ceiling, /plain "
      "(our time / our softmax's)\nand memory are of the step, forward and backward.\n\n",
      timed_table(rows, ceiling));
  return report;
}

Report AttentionBenchmark::run() const {
  run_.apply();
  const auto all = shapes();
  for (const auto& method : methods_) method_specs(method, {}, Origin::kScratch);  // known names
  if (models::resolve_device(device_).is_cuda()) {
    if (memory_) throw UsageError("--memory counts memory of the host; leave out --device cuda");
    return gpu_attention(all, methods_, run_.seconds);
  }
  std::optional<MatmulCeiling> ceiling;
  if (!memory_) ceiling.emplace(all.front().type);
  std::vector<Measurement> rows;
  Progress progress("bench", static_cast<int64_t>(all.size()), "shapes");
  for (size_t i = 0; i < all.size(); ++i) {
    progress.update(static_cast<int64_t>(i), all[i].text());
    for (int64_t run = 0; ceiling && run < kLeastRuns; ++run) ceiling->sample();
    for (auto& row : measure(all[i])) rows.push_back(std::move(row));
  }
  progress.update(static_cast<int64_t>(all.size()));
  progress.finish();
  return memory_ ? memory_report(rows) : timed_report(rows, ceiling->gflops());
}

}  // namespace

std::shared_ptr<Benchmark> make_attention_benchmark() {
  return std::make_shared<AttentionBenchmark>();
}

}  // namespace tempera::bench
