#include "tempera/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <vector>

#include "tempera/ops/backend.h"

namespace tempera::ops {
namespace {

thread_local int g_invariant = 0;

}  // namespace

RowInvariance::RowInvariance() { ++g_invariant; }
RowInvariance::~RowInvariance() { --g_invariant; }
bool RowInvariance::wanted() { return g_invariant > 0; }

at::Tensor by_sequence(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f) {
  if (!RowInvariance::wanted() || x.size(0) == 1) return f(x);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(1)) parts.push_back(f(part));
  return at::cat(parts);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  RECORD_FUNCTION("tempera::linear", {});
  return backend_of(x).linear(x, weight, bias);
}

}  // namespace tempera::ops
