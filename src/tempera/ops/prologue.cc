#include "tempera/ops/prologue.h"

#include "tempera/ops/cuda.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {

bool has_prologue(const at::Tensor& x, int64_t size, int64_t pairs) {
  return cuda::takes(x, size) && size <= 256 && pairs % 4 == 0;
}

std::vector<at::Tensor> prologue(const PrologueArgs& args) {
  RECORD_FUNCTION("tempera::prologue", {});
  TORCH_CHECK(!args.operands.empty() && args.operands.size() <= 3,
              "prologue: ", args.operands.size(), " operands given, one to three expected");
  int64_t columns = 0;
  for (const PrologueOperand& operand : args.operands) columns += operand.heads * args.size;
  const int64_t rows = args.x.defined() ? args.x.size(1) : args.operands.front().x.size(2);
  if (args.x.defined()) {
    TORCH_CHECK(args.x.dim() == 3 && args.x.size(2) == columns, "prologue: x ", args.x.sizes(),
                " given, (B, T, ", columns, " = all heads' columns) expected");
  } else {
    for (const PrologueOperand& operand : args.operands)
      TORCH_CHECK(operand.x.dim() == 4 && operand.x.size(1) == operand.heads &&
                      operand.x.size(2) == rows && operand.x.size(3) == args.size,
                  "prologue: an operand ", operand.x.sizes(), " given, (B, ", operand.heads, ", ",
                  rows, ", ", args.size, ") expected");
  }
  TORCH_CHECK(!args.cos.defined() || args.positions.defined() || args.cos.size(0) >= rows,
              "prologue: ", rows, " rows given, the tables have ", args.cos.size(0));
  return cuda::prologue(args);
}

}  // namespace tempera::ops
