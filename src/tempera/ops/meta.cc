#include "tempera/ops/meta.h"

#include <ATen/ATen.h>

#include <limits>

#include "tempera/ops/scale.h"

namespace tempera::ops {

// out is laid out as (B, rows, H, size), which the output projection reads without a copy.
template <class Args>
AttentionResult empty_result(const Args& args, const Dims& dims) {
  const at::TensorOptions real = args.q.options().dtype(scale_type(args.q.scalar_type()));
  const auto rows = [&] { return at::empty_symint({dims.batch, dims.q_heads, dims.q_rows}, real); };
  AttentionResult result;
  result.out =
      at::empty_symint({dims.batch, dims.q_rows, dims.q_heads, dims.v_size}, args.q.options())
          .transpose(1, 2);
  result.lse = rows();
  if (args.want_max) result.max = rows();
  if (args.want_entropy) result.entropy = rows();
  if (args.want_head_max) result.head_max = at::empty_symint({dims.q_heads}, real);
  return result;
}

template AttentionResult empty_result(const AttentionArgs&, const Dims&);
template AttentionResult empty_result(const DecodeArgs&, const Dims&);

namespace {

// Strides as the operand's, so that the gradient of a view is a view again; the columns stay
// contiguous.
at::Tensor empty_rows_like(const at::Tensor& operand) {
  at::Tensor rows = at::empty_like(operand);
  if (rows.sym_strides().back() == 1) return rows;
  return at::empty_like(operand, at::MemoryFormat::Contiguous);
}

}  // namespace

std::vector<at::Tensor> empty_gradients(const BackwardArgs& args) {
  const AttentionArgs& inputs = args.inputs;
  std::vector<at::Tensor> gradients;
  visit_differentiable(inputs, [&](const char*, const at::Tensor& input) {
    const bool rows = &input == &inputs.q || &input == &inputs.k || &input == &inputs.v ||
                      &input == &inputs.q_recipe.source || &input == &inputs.k_recipe.source ||
                      &input == &inputs.v_recipe.source;
    if (!args.wanted[gradients.size()])
      gradients.emplace_back();
    else if (rows)
      gradients.push_back(empty_rows_like(input));
    else
      gradients.push_back(at::empty_like(input, at::MemoryFormat::Contiguous));
  });
  return gradients;
}

void fill_empty(const AttentionResult& result) {
  const double none = -std::numeric_limits<double>::infinity();
  result.out.zero_();
  result.lse.fill_(none);
  if (result.max.defined()) result.max.fill_(none);
  if (result.entropy.defined()) result.entropy.zero_();
  if (result.head_max.defined()) result.head_max.fill_(none);
}

AttentionResult attention_meta(const AttentionArgs& args) {
  return empty_result(args, check(args));
}

AttentionResult decode_meta(const DecodeArgs& args) { return empty_result(args, check(args)); }

}  // namespace tempera::ops
