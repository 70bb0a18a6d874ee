#include "tempera/bench/attention_pair.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/ops/attention.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/temperature/rows.h"
#include "tempera/temperature/scale.h"

namespace tempera::bench {
namespace {

// q, k, v and x, in front of the parameters among the leaves.
constexpr size_t kInputs = 4;

// As it is written in torch, in the type of the rows.
torch::Tensor scaled(const torch::Tensor& rows, const RowScale& scale, const torch::Tensor& n) {
  if (!scale.present()) return rows;
  const auto type = rows.scalar_type();
  return rows * finish(scale, n, type).to(type).unsqueeze(-1);
}

}  // namespace

LayerShape AttentionShape::layer_shape() const {
  return {.layers = 1,
          .layer = 0,
          .d_model = heads * size,
          .q_heads = heads,
          .kv_heads = kv_heads,
          .qk_size = size,
          .v_size = size,
          .vocabulary = 0,
          .trained_length = std::max<int64_t>(length / 2, 2),
          .kind = AttentionKind::kCausal};
}

double AttentionShape::forward_flops() const {
  const auto rows = static_cast<double>(length);
  return 2 * static_cast<double>(batch * heads * size) * rows * rows;
}

void AttentionShape::check() const {
  if (heads % kv_heads != 0)
    throw UsageError(concat("--kv-heads ", kv_heads, " given, a divisor of the ", heads,
                            " query heads expected"));
  if (size % 8 != 0)
    throw UsageError(concat("--head-size ", size, " given, a multiple of 8 expected"));
}

std::string AttentionShape::text() const {
  return concat("B ", batch, ", H ", heads, kv_heads == heads ? "" : concat("/", kv_heads), ", T ",
                length, ", D ", size, ", ", type_name(type));
}

const char* type_name(torch::ScalarType type) { return type == torch::kBFloat16 ? "bf16" : "fp32"; }

torch::ScalarType type_of(const std::string& name) {
  return name == "bf16" ? torch::kBFloat16 : torch::kFloat32;
}

double relative_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  const auto exact = expected.to(torch::kFloat64);
  const double size = exact.abs().max().item<double>();
  const double difference = (actual.to(torch::kFloat64) - exact).abs().max().item<double>();
  return difference == 0 ? 0 : difference / size;
}

double error_limit(torch::ScalarType type, bool of_parameter) {
  if (type != torch::kBFloat16) return 1e-3;
  return of_parameter ? 0.5 : 0.05;
}

LayerInputs AttentionPair::make_inputs(const AttentionShape& shape) {
  const auto leaf = [&](at::IntArrayRef sizes) {
    return torch::randn(sizes).to(shape.type).requires_grad_();
  };
  const auto counts = sequence_rows({.documents = {}, .start = {}, .end = {}, .causal = true},
                                    shape.batch, shape.length, torch::kCPU);
  LayerInputs inputs;
  inputs.queries = {.x = leaf({shape.batch, shape.length, shape.heads * shape.size}),
                    .tokens = {},
                    .n = counts.n,
                    .position = counts.position};
  inputs.keys = inputs.queries;
  inputs.q = leaf({shape.batch, shape.heads, shape.length, shape.size});
  inputs.k = leaf({shape.batch, shape.kv_heads, shape.length, shape.size});
  inputs.v = leaf({shape.batch, shape.kv_heads, shape.length, shape.size});
  return inputs;
}

AttentionPair::AttentionPair(const AttentionShape& shape, const LayerInputs& inputs,
                             const std::string& method)
    : shape_(shape),
      name_(method),
      inputs_(inputs),
      implementation_(make_method(method_specs(method, {}, Origin::kScratch), shape.layer_shape())),
      leaves_{inputs.q, inputs.k, inputs.v, inputs.queries.x},
      d_out_(torch::randn_like(inputs.q)) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : implementation_->parameters()) {
    parameter.add_(torch::randn_like(parameter), 0.05);
    leaves_.push_back(parameter);
  }
}

torch::Tensor AttentionPair::forward(Side side) const {
  return side == Side::kOurs ? ours() : theirs();
}

torch::Tensor AttentionPair::ours() const {
  ops::AttentionArgs args;
  args.q = inputs_.q;
  args.k = inputs_.k;
  args.v = inputs_.v;
  args.key_counts = inputs_.keys.n;
  args.causal = true;
  apply(implementation_->forward(inputs_), args);
  return ops::attention(args).out;
}

torch::Tensor AttentionPair::theirs() const {
  const RowScales scales = implementation_->forward(inputs_);
  const auto& n = inputs_.keys.n;
  return at::scaled_dot_product_attention(
      scaled(inputs_.q, scales.q, inputs_.queries.n), scaled(inputs_.k, scales.k, n),
      scaled(inputs_.v, scales.v, n), /*attn_mask=*/std::nullopt, /*dropout_p=*/0,
      /*is_causal=*/true, /*scale=*/std::nullopt,
      /*enable_gqa=*/shape_.heads != shape_.kv_heads);
}

std::vector<torch::Tensor> AttentionPair::step(Side side) const {
  const auto out = forward(side);
  auto results = torch::autograd::grad({out}, leaves_, {d_out_}, /*retain_graph=*/std::nullopt,
                                       /*create_graph=*/false, /*allow_unused=*/true);
  results.insert(results.begin(), out.detach());
  return results;
}

double AttentionPair::check() const {
  const auto mine = step(Side::kOurs);
  const auto theirs = step(Side::kTorch);
  double worst = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    TEMPERA_CHECK(mine[i].defined() == theirs[i].defined(), name_, " at ", shape_.text(),
                  ": only one side has gradient ", i);
    if (!mine[i].defined()) continue;
    const double error = relative_error(mine[i], theirs[i]);
    const double limit = error_limit(shape_.type, /*of_parameter=*/i > kInputs);
    // Written so that NaN fails too.
    TEMPERA_CHECK(error <= limit, name_, " at ", shape_.text(), ": result ", i,
                  " (0: the output, then gradients) differs from torch's by ", error,
                  " of its largest element, at most ", limit, " expected; nothing was timed");
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace tempera::bench
