#include "tempera/ops/linear.h"

#include <ATen/record_function.h>

#include "tempera/ops/backend.h"

namespace tempera::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  RECORD_FUNCTION("tempera::linear", {});
  return backend_of(x).linear(x, weight, bias);
}

}  // namespace tempera::ops
