#include "tempera/ops/cpu/product.h"

#include "tempera/kernels/product.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;

// With fewer rows packing the other matrix costs too much; a product of few numbers is over before
// the threads have been told of it. docs/performance.md has the measurement.
constexpr int64_t kLeastRows = 128, kLeastWork = 1 << 20;

// Kept from call to call, since memory that is new to the process has to be cleared first.
const Tensor& scratch(int64_t floats) {
  thread_local Tensor memory;
  if (!memory.defined() || memory.numel() < floats) memory = at::empty({floats}, at::kFloat);
  return memory;
}

bool is_fast(const Tensor& out, const Tensor& a, const Tensor& b) {
  const auto is_float = [](const Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; };
  return is_float(out) && is_float(a) && is_float(b) && out.stride(1) == 1 &&
         (b.stride(0) == 1 || b.stride(1) == 1) &&
         has_fast_product(a.size(0), b.size(1), a.size(1));
}

}  // namespace

bool has_fast_product(int64_t rows, int64_t columns, int64_t depth) {
  return rows >= kLeastRows && columns * depth >= kLeastWork / rows && kernels::has_fast_product();
}

void Cpu::product_into(Tensor out, const Tensor& a, const Tensor& b, bool add) const {
  if (!is_fast(out, a, b)) {
    KernelBackend::product_into(out, a, b, add);
    return;
  }
  RECORD_FUNCTION("tempera::product", {});
  const kernels::ProductParams params{
      a.size(0),        b.size(1),   a.size(1),   memory<float>(a),   a.stride(0),   a.stride(1),
      memory<float>(b), b.stride(0), b.stride(1), memory<float>(out), out.stride(0), add};
  AtenParallel parallel;
  kernels::product(params, parallel, memory<float>(scratch(kernels::product_workspace(params))));
}

}  // namespace tempera::ops
