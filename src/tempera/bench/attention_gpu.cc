#include "tempera/bench/attention_gpu.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/gpu.h"
#include "tempera/bench/timing.h"
#include "tempera/ops/attention.h"
#include "tempera/ops/graph.h"
#include "tempera/ops/projected.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/temperature/rows.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int kReplays = 5;  // a sample: starting one graph takes microseconds
constexpr int64_t kLeastSamples = 5;

enum class Start { kLibrary, kReady, kProjection };

const char* from_name(Start from) {
  return from == Start::kLibrary ? "cuDNN, q k v" : from == Start::kReady ? "q k v" : "projection";
}

// One way to the same attention, with leaves of its own.
class GpuContender {
 public:
  GpuContender(const AttentionShape& shape, Start from, const std::string& method)
      : shape_(shape), from_(from), name_(method) {
    const int64_t all = shape.heads + 2 * shape.kv_heads;
    const auto options = torch::dtype(shape.type).device(torch::kCUDA);
    projection_ = torch::randn({shape.batch, shape.length, all * shape.size}, options);
    d_out_ =
        torch::randn({shape.batch, shape.length, shape.heads, shape.size}, options).transpose(1, 2);
    const auto rows = sequence_rows({.documents = {}, .start = {}, .end = {}, .causal = true},
                                    shape.batch, shape.length, torch::kCUDA);
    rows_ = {.x = {}, .tokens = {}, .n = rows.n, .position = rows.n - 1};
    method_ = make_method(method_specs(method, {}, Origin::kScratch), shape.layer_shape());
    method_->to(torch::kCUDA);
    for (auto& parameter : method_->parameters()) leaves_.push_back(parameter);
    if (from == Start::kProjection) {
      leaves_.push_back(projection_.requires_grad_());
      const auto angle = torch::outer(torch::arange(shape.length, torch::kFloat32),
                                      torch::arange(1, shape.size / 2 + 1, torch::kFloat32))
                             .mul(1e-3)
                             .to(torch::kCUDA);
      cos_ = angle.cos();
      sin_ = angle.sin();
      return;
    }
    for (torch::Tensor* part : {&q_, &k_, &v_}) {
      const int64_t heads = part == &q_ ? shape.heads : shape.kv_heads;
      *part = torch::randn({shape.batch, shape.length, heads, shape.size}, options)
                  .transpose(1, 2)
                  .requires_grad_();
      leaves_.push_back(*part);
    }
  }

  const std::string& method() const { return name_; }
  Start from() const { return from_; }

  torch::Tensor forward() const {
    if (from_ == Start::kLibrary)
      return std::get<0>(at::_scaled_dot_product_cudnn_attention(
          q_, k_, v_, {}, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true, false));
    if (from_ == Start::kProjection) return from_projection();
    ops::AttentionArgs args;
    args.causal = true;
    args.q = q_;
    args.k = k_;
    args.v = v_;
    apply(method_->forward(inputs(q_, k_, v_)), args);
    return ops::attention(args).out;
  }

  void step() const {
    torch::autograd::grad({forward()}, leaves_, {d_out_}, /*retain_graph=*/std::nullopt,
                          /*create_graph=*/false, /*allow_unused=*/true);
  }

 private:
  LayerInputs inputs(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) const {
    return {rows_, rows_, q, k, v, {}};
  }

  // As a layer of a model does it.
  torch::Tensor from_projection() const {
    ops::ProjectedArgs args;
    args.q = ops::heads_of(projection_, 0, shape_.heads, shape_.size);
    args.k = ops::heads_of(projection_, shape_.heads, shape_.kv_heads, shape_.size);
    args.v =
        ops::heads_of(projection_, shape_.heads + shape_.kv_heads, shape_.kv_heads, shape_.size);
    const RowScales scales = method_->forward(inputs(args.q.rows, args.k.rows, args.v.rows));
    args.q.scale = scales.q;
    args.k.scale = scales.k;
    args.v.scale = scales.v;
    args.q_n = args.k_n = rows_.n;
    args.cos = cos_;
    args.sin = sin_;
    args.attention.causal = true;
    return ops::attend(args).out;
  }

  AttentionShape shape_;
  Start from_;
  std::string name_;
  std::shared_ptr<Method> method_;
  RowInfo rows_;
  torch::Tensor projection_, q_, k_, v_, d_out_, cos_, sin_;
  std::vector<torch::Tensor> leaves_;
};

std::unique_ptr<ops::CudaGraph> graph_of(const std::function<void()>& work) {
  auto graph = std::make_unique<ops::CudaGraph>();
  graph->capture(work, work);
  return graph;
}

std::function<void()> replays(ops::CudaGraph& graph) {
  return [&graph] {
    for (int i = 0; i < kReplays; ++i) graph.replay();
    torch::cuda::synchronize();
  };
}

struct GpuRow {
  AttentionShape shape;
  std::string method;
  Start from;
  Spread forward, step;
};

std::vector<GpuRow> measure_gpu(const AttentionShape& shape,
                                const std::vector<std::string>& methods, double seconds) {
  std::vector<GpuContender> contenders;
  contenders.emplace_back(shape, Start::kLibrary, "softmax");
  for (const Start from : {Start::kReady, Start::kProjection})
    for (const auto& method : methods) contenders.emplace_back(shape, from, method);
  std::vector<std::unique_ptr<ops::CudaGraph>> graphs;
  std::vector<std::function<void()>> forwards, steps;
  for (const auto& contender : contenders) {
    graphs.push_back(graph_of([&] {
      const torch::NoGradGuard no_grad;
      contender.forward();
    }));
    forwards.push_back(replays(*graphs.back()));
    graphs.push_back(graph_of([&] { contender.step(); }));
    steps.push_back(replays(*graphs.back()));
  }
  for (const auto& work : forwards) work();
  for (const auto& work : steps) work();
  const auto forward = time_in_turn(forwards, 0.3 * seconds, kLeastSamples);
  const auto step = time_in_turn(steps, 0.7 * seconds, kLeastSamples);
  const auto each = [](Spread spread) {
    for (double* number : {&spread.median, &spread.min, &spread.lower, &spread.upper})
      *number /= kReplays;
    return spread;
  };
  std::vector<GpuRow> rows;
  for (size_t i = 0; i < contenders.size(); ++i)
    rows.push_back(
        {shape, contenders[i].method(), contenders[i].from(), each(forward[i]), each(step[i])});
  return rows;
}

std::string gpu_milliseconds(const Spread& spread) {
  return concat(fixed(1e3 * spread.median, 3), " (", fixed(1e3 * spread.lower, 3), "-",
                fixed(1e3 * spread.upper, 3), ")");
}

}  // namespace

Report gpu_attention(const std::vector<AttentionShape>& shapes,
                     const std::vector<std::string>& methods, double seconds) {
  for (const auto& shape : shapes)
    if (shape.type != torch::kBFloat16)
      throw UsageError(
          "on a GPU the comparison is with cuDNN, which has no fp32: give --dtype bf16");
  const GpuCeilings ceilings = measure_gpu_ceilings();
  Report report{{{"rows", ordered_json::array()}, {"machine", gpu_description(ceilings)}}, {}};
  TextTable table({"from", "method", "B", "H", "T", "D", "forward ms", "step ms", "TFLOP/s",
                   "ceiling", "/cuDNN", "/plain"});
  Progress progress("bench", static_cast<int64_t>(shapes.size()), "shapes");
  for (const auto& shape : shapes) {
    progress.update(0, shape.text());
    const auto rows = measure_gpu(shape, methods, seconds);
    for (const GpuRow& row : rows) {
      const auto plain = std::ranges::find_if(rows, [&](const GpuRow& other) {
        return other.from == row.from && other.method == "softmax";
      });
      const double rate = shape.step_flops() / row.step.median;
      const double library = row.step.median / rows[0].step.median;
      const double over = plain == rows.end() ? 0 : row.step.median / plain->step.median;
      report.document["rows"].push_back({{"from", from_name(row.from)},
                                         {"method", row.method},
                                         {"dtype", type_name(shape.type)},
                                         {"B", shape.batch},
                                         {"H", shape.heads},
                                         {"T", shape.length},
                                         {"D", shape.size},
                                         {"forward_ms", 1e3 * row.forward.median},
                                         {"step_ms", 1e3 * row.step.median},
                                         {"tflops", rate / 1e12},
                                         {"over_library", library},
                                         {"over_plain", over}});
      table.add({from_name(row.from), row.method, std::to_string(shape.batch),
                 std::to_string(shape.heads), std::to_string(shape.length),
                 std::to_string(shape.size), gpu_milliseconds(row.forward),
                 gpu_milliseconds(row.step), fixed(rate / 1e12, 0),
                 fixed(100 * rate / ceilings.matmul_flops, 0) + " %", fixed(library, 3),
                 plain == rows.end() ? "" : fixed(over, 3)});
    }
  }
  progress.finish();
  report.text = concat(
      "Causal attention on a GPU, ", type_name(shapes.front().type), ", ", gpu_text(ceilings),
      ".\nMedians and quartiles of graphs; TFLOP/s, ceiling and ratios of times are "
      "of the step, forward and backward.\n\n",
      table.text());
  return report;
}

}  // namespace tempera::bench
