#include "tempera/kernels/cuda/prologue.h"

#include "tempera/base/error.h"

namespace tempera::kernels::cuda {
namespace {

template <class T>
void check_operand(const char* name, const PrologueOperand& operand, const Rows<const T>& x,
                   const PrologueParams<T>& params) {
  TEMPERA_CHECK(operand.heads >= 0, name, ": ", operand.heads, " heads given");
  if (operand.heads == 0) return;
  TEMPERA_CHECK(x.data || params.batch * params.rows == 0, name, ": its rows are absent");
  TEMPERA_CHECK(takes_head(operand.size), name, ": a head of ", operand.size,
                " columns given, a multiple of 8 up to 256 expected");
  TEMPERA_CHECK(!operand.gain || operand.norm, name, ": a gain is given, and no norm");
  const PrologueScale& scale = operand.scale;
  TEMPERA_CHECK(!scale.s || scale.w || scale.g || scale.c, name,
                ": s alone makes every scale 0; give a constant as c");
  if (!operand.rotate) return;
  TEMPERA_CHECK(params.cos && params.sin, name, ": a rotation without tables of cosines and sines");
  TEMPERA_CHECK(params.pairs > 0 && takes_pairs(params.pairs) && 2 * params.pairs <= operand.size,
                name, ": ", params.pairs,
                " pairs of columns to rotate given, a multiple of 4 up to ", operand.size / 2,
                " expected; rotate in a pass of its own");
}

}  // namespace

template <class T>
void validate(const PrologueParams<T>& params) {
  TEMPERA_CHECK(params.batch >= 0 && params.rows >= 0, "negative shape: batch ", params.batch,
                ", rows ", params.rows);
  check_operand("q", params.q, params.x_q, params);
  check_operand("k", params.k, params.x_k, params);
  check_operand("v", params.v, params.x_v, params);
  TEMPERA_CHECK(params.q.heads + params.k.heads + params.v.heads > 0, "no heads given");
}

template void validate(const PrologueParams<float>&);
template void validate(const PrologueParams<BFloat16>&);

}  // namespace tempera::kernels::cuda
