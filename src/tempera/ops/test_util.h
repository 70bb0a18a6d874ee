#pragma once

#include "tempera/ops/attention.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {

inline at::Tensor random(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(type);
}

// The largest difference, relative to the largest expected number.
inline double error_of(const at::Tensor& given, const at::Tensor& expected) {
  if (!given.defined() || given.sizes() != expected.sizes()) return 1e9;
  if (expected.numel() == 0) return 0;
  const at::Tensor wide = expected.to(at::kDouble);
  const at::Tensor finite = wide.nan_to_num(0, 0, 0);
  const double size = std::max(finite.abs().max().item<double>(), 1e-3);
  // Equal infinities do not differ.
  const at::Tensor difference =
      (given.to(at::kDouble) - wide).abs().masked_fill(given.to(at::kDouble) == wide, 0);
  const double error = difference.max().item<double>() / size;
  return error == error ? error : 1e9;
}

inline bool same_bits(const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); }

}  // namespace tempera::ops
