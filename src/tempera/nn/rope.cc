#include <algorithm>
#include <cmath>
#include <numbers>

#include "tempera/nn/positions.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

torch::Tensor frequencies(double base, int64_t size) {
  const auto column = torch::arange(0, size, 2, torch::kFloat64) / static_cast<double>(size);
  return torch::pow(torch::full({}, base, torch::kFloat64), -column);
}

// Beyond the trained length the base grows with the length, so that the slowest wave covers it
// ("NTK-aware" scaling).
double dynamic_base(const RopeConfig& rope, int64_t size, int64_t context, int64_t length) {
  if (length <= context || size <= 2) return rope.base;
  const double ratio = static_cast<double>(length) / static_cast<double>(context);
  const double columns = static_cast<double>(size);
  return rope.base * std::pow(rope.factor * ratio - (rope.factor - 1), columns / (columns - 2));
}

// YaRN: waves that turn often inside the original context keep their frequency, slow ones are
// stretched by the factor, and a linear ramp over the columns joins both.
torch::Tensor yarn(const RopeConfig& rope, int64_t size) {
  const auto plain = frequencies(rope.base, size);
  const auto column_of = [&](double turns) {
    const double wave = static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi);
    return static_cast<double>(size) * std::log(wave) / (2 * std::log(rope.base));
  };
  double low = column_of(rope.beta_fast);
  double high = column_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(size - 1));
  if (low == high) high += 0.001;  // no ramp of width 0
  const auto ramp = ((torch::arange(size / 2, torch::kFloat64) - low) / (high - low)).clamp(0, 1);
  return plain / rope.factor * ramp + plain * (1 - ramp);
}

// Llama 3: the same idea with the ramp over the wave length.
torch::Tensor llama3(const RopeConfig& rope, int64_t size) {
  const auto plain = frequencies(rope.base, size);
  const auto turns = static_cast<double>(rope.original_context) * plain / (2 * std::numbers::pi);
  const auto kept = ((turns - rope.low_factor) / (rope.high_factor - rope.low_factor)).clamp(0, 1);
  return plain / rope.factor * (1 - kept) + plain * kept;
}

bool is_short(const RopeConfig& rope, int64_t length) {
  return !rope.short_factors.empty() && length <= rope.original_context;
}

torch::Tensor divided(const RopeConfig& rope, int64_t size, int64_t length) {
  const auto& factors = is_short(rope, length) ? rope.short_factors : rope.factors;
  return frequencies(rope.base, size) / torch::tensor(factors, torch::kFloat64);
}

}  // namespace

int64_t rotary_regime(const RopeConfig& rope, int64_t context, int64_t length) {
  if (rope.scaling == RopeScaling::kDynamic) return std::max(length, context);
  return is_short(rope, length) ? 1 : 0;
}

torch::Tensor rotary_frequencies(const RopeConfig& rope, int64_t size, int64_t context,
                                 int64_t length) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return frequencies(rope.base, size);
    case RopeScaling::kLinear:
      return frequencies(rope.base, size) / rope.factor;
    case RopeScaling::kDynamic:
      return frequencies(dynamic_base(rope, size, context, length), size);
    case RopeScaling::kYarn:
      return yarn(rope, size);
    case RopeScaling::kLlama3:
      return llama3(rope, size);
    case RopeScaling::kFactors:
      return divided(rope, size, length);
  }
  TORCH_INTERNAL_ASSERT(false, "a scaling without a case");
}

double rotary_amplitude(const RopeConfig& rope) {
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  if (!yarn && rope.scaling != RopeScaling::kFactors) return 1;
  if (rope.attention_factor > 0) return rope.attention_factor;
  return yarn && rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1;
}

}  // namespace tempera::nn
