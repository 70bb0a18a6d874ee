#include "tempera/ops/projected.h"

#include <ATen/ATen.h>

#include "tempera/base/error.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/backend.h"

namespace tempera::ops {
namespace {

void check_projection(const char* name, const ProjectedOperand& operand) {
  TEMPERA_CHECK(operand.projection.dim() == 3 && operand.rows.dim() == 4 &&
                    operand.projection.size(2) % operand.rows.size(3) == 0,
                "attend: the projection of ", name, " is ", operand.projection.sizes(),
                " and its heads ", operand.rows.sizes(),
                ", (B, T, heads * size) and (B, heads, T, size) expected");
}

}  // namespace

ProjectedOperand heads_of(const at::Tensor& projection, int64_t first, int64_t heads,
                          int64_t size) {
  TEMPERA_CHECK(projection.dim() == 3 && (first + heads) * size <= projection.size(2),
                "a projection ", projection.sizes(), " given, (B, T, at least ",
                (first + heads) * size, " = ", first + heads, " heads of ", size,
                " columns) expected");
  ProjectedOperand operand{.projection = projection, .first = first};
  // A step of generation does this for every layer: one view costs a third of three.
  if (!wants_gradient({projection}))
    operand.rows =
        projection.as_strided({projection.size(0), heads, projection.size(1), size},
                              {projection.stride(0), size * projection.stride(2),
                               projection.stride(1), projection.stride(2)},
                              projection.storage_offset() + first * size * projection.stride(2));
  else
    operand.rows = projection.narrow(2, first * size, heads * size)
                       .unflatten(2, {heads, size})
                       .transpose(1, 2);
  return operand;
}

ProjectedResult attend(const ProjectedArgs& args, KeyCache* cache) {
  check_projection("q", args.q);
  if (!cache || args.k.projection.defined()) {
    check_projection("k", args.k);
    check_projection("v", args.v);
  }
  return backend_of(args.q.projection).attend(args, cache);
}

void remember(const ProjectedArgs& args, KeyCache& cache) {
  check_projection("k", args.k);
  check_projection("v", args.v);
  backend_of(args.k.projection).remember(args, cache);
}

}  // namespace tempera::ops
