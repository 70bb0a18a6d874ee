#pragma once

namespace tempera::kernels::cuda {

// For what comes from bf16: the normal distribution's integral up to x is
// (1 + tanh(x * (first + second * z + third * z * z))) / 2 to within 2e-5, with z = min(x * x,
// end). This is GELU's tanh form with one term more, fitted to the integral. From the end on tanh
// is 1, and further on the polynomial would turn round.
struct NormalFit {
  static constexpr float kFirst = 0.79771783F, kSecond = 3.6798256e-2F, kThird = -3.1580705e-4F;
  static constexpr float kEnd = 60;
};

}  // namespace tempera::kernels::cuda
