#include "tempera/nn/positions.h"

#include <algorithm>
#include <cmath>

#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

constexpr int64_t kBuckets = 32;
constexpr int64_t kFarthest = 128;  // distances from here on share the last bucket

// The bucket of distances >= 0: one each below half of them, then on a logarithmic scale.
torch::Tensor distance_bucket(const torch::Tensor& distance, int64_t buckets) {
  const int64_t exact = buckets / 2;
  const double ratio = std::log(static_cast<double>(kFarthest) / static_cast<double>(exact));
  const auto far = (distance.clamp_min(exact).to(torch::kFloat64) / static_cast<double>(exact))
                       .log()
                       .mul(static_cast<double>(buckets - exact) / ratio)
                       .to(torch::kInt64)
                       .add(exact)
                       .clamp_max(buckets - 1);
  return torch::where(distance < exact, distance, far);
}

}  // namespace

void RotaryTable::reserve(int64_t length, const torch::Device& device) {
  const int64_t regime = rotary_regime(rope_, context_, length);
  const bool fits = table_.cos.defined() && regime == regime_;
  const int64_t held = fits ? table_.cos.size(0) : 0;
  if (held >= length && table_.cos.device() == device) return;
  regime_ = regime;
  // In float64: at position 1e6 a float32 angle has an error of a tenth of a radian.
  const auto frequency = rotary_frequencies(rope_, size_, context_, length);
  const auto position = torch::arange(std::max(length, 2 * held), torch::kFloat64);
  const auto angle = torch::outer(position, frequency);
  const auto table = [&](const torch::Tensor& waves) {
    return (waves * rotary_amplitude(rope_)).to(device, torch::kFloat32);
  };
  table_ = {table(angle.cos()), table(angle.sin()), {}};
}

Angles RotaryTable::range(int64_t first, int64_t rows, int64_t length,
                          const torch::Device& device) {
  reserve(length, device);
  return {table_.cos.narrow(0, first, rows), table_.sin.narrow(0, first, rows), {}};
}

Angles RotaryTable::at(const torch::Tensor& position, int64_t length) {
  reserve(length, position.device());
  return {table_.cos, table_.sin, position.clamp_min(0)};
}

torch::Tensor sinusoidal(const torch::Tensor& position, int64_t width) {
  const auto options = torch::dtype(torch::kFloat64).device(position.device());
  const auto column = torch::arange(0, width, 2, options) / static_cast<double>(width);
  const auto frequency = torch::pow(torch::full({}, 10000.0, options), -column);
  const auto angle = position.clamp_min(0).to(torch::kFloat64).unsqueeze(-1) * frequency;
  return torch::stack({angle.sin(), angle.cos()}, -1)
      .flatten(-2)
      .narrow(-1, 0, width)
      .to(torch::kFloat32);
}

RelativeBias::RelativeBias(int64_t heads, bool bidirectional)
    : bidirectional_(bidirectional),
      weight_(register_parameter("weight", torch::empty({kBuckets, heads}))) {}

torch::Tensor RelativeBias::forward(int64_t first, int64_t rows, int64_t keys) const {
  const auto options = torch::dtype(torch::kInt64).device(weight_.device());
  const auto query = torch::arange(first, first + rows, options).unsqueeze(1);
  const auto behind = query - torch::arange(keys, options);  // how far the key lies behind
  torch::Tensor bucket;
  if (bidirectional_) {
    const auto ahead = (behind < 0).to(torch::kInt64) * (kBuckets / 2);
    bucket = ahead + distance_bucket(behind.abs(), kBuckets / 2);
  } else {
    bucket = distance_bucket(behind.clamp_min(0), kBuckets);
  }
  return torch::embedding(weight_, bucket).permute({2, 0, 1}).unsqueeze(0);
}

}  // namespace tempera::nn
