#include "tempera/study/toy_layer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/data/random.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/train/optimizer.h"
#include "tempera/train/schedule.h"

namespace tempera::study {
namespace {

torch::Tensor counts(int64_t batch, int64_t rows, int64_t value) {
  return torch::full({batch, rows}, value, torch::kInt64);
}

LayerInputs layer_inputs(const ToyInputs& inputs) {
  const int64_t batch = inputs.context.size(0), n = inputs.context.size(1);
  return {.queries = {inputs.query, {}, counts(batch, 1, n), counts(batch, 1, 0)},
          .keys = {inputs.context, {}, counts(batch, n, n), torch::arange(n).expand({batch, n})},
          .q = inputs.q,
          .k = inputs.k,
          .v = inputs.v,
          .past = {}};
}

// The kernels take rows of whole vectors: values are filled up with columns of zeros.
torch::Tensor padded(const torch::Tensor& values) {
  constexpr int64_t kVector = 8;
  const int64_t missing = (kVector - values.size(-1) % kVector) % kVector;
  return missing > 0 ? torch::constant_pad_nd(values, {0, missing}) : values;
}

ops::AttentionArgs arguments(const LayerInputs& inputs) {
  ops::AttentionArgs args;
  args.q = inputs.q;
  args.k = inputs.k;
  args.v = padded(inputs.v);
  args.key_counts = inputs.keys.n;
  return args;
}

// (B, rows) of a scale; 1 where there is none.
torch::Tensor finished(const RowScale& scale, const torch::Tensor& n) {
  if (!scale.present()) return torch::ones(n.sizes());
  return finish(scale, n, torch::kFloat32).select(1, 0);
}

}  // namespace

std::shared_ptr<Method> make_toy_method(const NamedMethod& method, const ToyShape& shape) {
  auto made = make_method(
      method_specs(method.temperature.method, method.temperature.options, Origin::kScratch),
      {.d_model = shape.width,
       .q_heads = 1,
       .kv_heads = 1,
       .qk_size = shape.size,
       .v_size = shape.value_size,
       .vocabulary = 1,
       .trained_length = shape.context,
       .kind = AttentionKind::kCross});
  if (made->reads_tokens())
    throw UsageError(
        concat("--methods: ", method.label, " reads the frequency of tokens, and here are none"));
  return made;
}

ToyOutput toy_attention(Method& method, const ToyInputs& inputs) {
  const LayerInputs layer = layer_inputs(inputs);
  const RowScales scales = method.forward(layer);
  auto args = arguments(layer);
  apply(scales, args);
  const auto out = ops::attention(args).out;
  return {.out = out.flatten(1).narrow(1, 0, inputs.v.size(3)),
          .a_q = finished(scales.q, layer.queries.n).squeeze(1),
          .a_v = finished(scales.v, layer.keys.n),
          .scales_values = scales.v.present()};
}

torch::Tensor toy_weight_on(Method& method, const ToyInputs& inputs, const torch::Tensor& chosen) {
  const LayerInputs layer = layer_inputs(inputs);
  RowScales scales = method.forward(layer);
  scales.v = {};
  auto args = arguments(layer);
  args.v = padded(chosen.view({1, 1, -1, 1}).expand({inputs.context.size(0), -1, -1, -1}));
  apply(scales, args);
  return ops::attention(args).out.flatten(1).select(1, 0);
}

torch::Tensor toy_matrix(int64_t outputs, int64_t inputs, at::Generator& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  const auto uniform = torch::rand({outputs, inputs}, random);
  return (bound * (2 * uniform - 1)).requires_grad_();
}

at::Generator toy_random(int64_t seed, const char* purpose) {
  return at::make_generator<at::CPUGeneratorImpl>(
      data::derive_seed(static_cast<uint64_t>(seed), purpose));
}

std::vector<nn::NamedParameter> toy_parameters(
    const std::vector<std::pair<std::string, torch::Tensor>>& matrices, Method& method) {
  std::vector<nn::NamedParameter> parameters;
  for (const auto& [name, tensor] : matrices)
    parameters.push_back({name, tensor, nn::ParameterKind::kMatrix});
  for (const auto& parameter : method.named_parameters())
    parameters.push_back({parameter.key(), parameter.value(), nn::ParameterKind::kTemperature});
  return parameters;
}

void toy_train(const ToySettings& settings, std::vector<nn::NamedParameter> parameters,
               const std::function<torch::Tensor(int64_t step)>& loss,
               const std::function<void(int64_t step)>& before) {
  train::OptimizerOptions options;
  options.learning_rate = settings.learning_rate;
  options.beta2 = 0.98;
  options.decay = 0;
  const train::Schedule schedule{.warmup = settings.steps / 20, .floor = 0};
  const auto optimizer = train::make_optimizer(options, parameters);
  for (int64_t step = 0; step < settings.steps; ++step) {
    before(step);
    for (auto& parameter : parameters) parameter.tensor.mutable_grad().reset();
    const auto value = loss(step);
    value.backward();
    const double norm = train::gradient_norm(parameters);
    TEMPERA_CHECK(std::isfinite(value.item<double>()) && std::isfinite(norm), "step ", step + 1,
                  ": the loss is no longer finite; give a lower --learning-rate");
    const double progress = static_cast<double>(step) / static_cast<double>(settings.steps);
    optimizer->step({.rate = options.learning_rate * schedule.factor(step, progress),
                     .gradient_scale = norm > options.clip ? options.clip / norm : 1});
  }
  before(settings.steps);
}

}  // namespace tempera::study
