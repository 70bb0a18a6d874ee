#include "tempera/ops/prologue.h"

#include "tempera/ops/cuda.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {

bool has_prologue(const at::Tensor& x, int64_t size, int64_t pairs) {
  return cuda::takes(x, size) && size <= 256 && pairs % 4 == 0;
}

std::vector<at::Tensor> prologue(const PrologueArgs& args) {
  RECORD_FUNCTION("tempera::prologue", {});
  int64_t columns = 0;
  for (const PrologueOperand& operand : args.operands) columns += operand.heads * args.size;
  TORCH_CHECK(args.x.dim() == 3 && args.x.size(2) == columns && args.operands.size() <= 3,
              "prologue: x ", args.x.sizes(), " given, (B, T, ", columns,
              " = all heads' columns) expected");
  TORCH_CHECK(!args.cos.defined() || args.positions.defined() || args.cos.size(0) >= args.x.size(1),
              "prologue: ", args.x.size(1), " rows given, the tables have ", args.cos.size(0));
  return cuda::prologue(args);
}

}  // namespace tempera::ops
