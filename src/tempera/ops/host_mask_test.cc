#include "tempera/ops/host_mask.h"

#include <gtest/gtest.h>

#include "tempera/ops/checks.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/problem.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops {
namespace {

constexpr int64_t kPackedRows = 37;

struct PackedCase {
  AttentionArgs args;
  std::vector<at::Tensor> leaves;

  at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
    return leaves.emplace_back(random(sizes, seed, type).requires_grad_());
  }
};

// Packed, padded, in order and with a window; temperatures that go by the keys a row sees.
PackedCase packed_case(at::ScalarType type) {
  PackedCase made;
  AttentionArgs& args = made.args;
  args.q = made.leaf({2, 4, kPackedRows, 16}, 1, type);
  args.k = made.leaf({2, 2, kPackedRows, 16}, 2, type);
  args.v = made.leaf({2, 2, kPackedRows, 24}, 3, type);
  args.q_recipe.g = made.leaf({4}, 4, type);
  args.v_recipe.g = made.leaf({2}, 5, type);
  args.a_k = made.leaf({2, 2, kPackedRows}, 6, type);
  args.documents = torch::tensor({{20, 17, 0}, {5, 30, 2}}, at::kLong);
  args.key_start = at::tensor({3, 0}, at::kLong);
  args.key_end = at::tensor({37, 36}, at::kLong);
  args.window = 9;
  args.causal = true;
  return made;
}

// Some of its rows, each with the keys that it sees.
void take_rows(AttentionArgs& args, const at::Tensor& rows) {
  const kernels::Shape shape = kernel_shape(check(args));
  const HostMask host = host_mask(args, shape);
  const at::Tensor begin = at::empty({2, kPackedRows}, at::kLong), end = begin.clone();
  for (int64_t row = 0; row < 2 * kPackedRows; ++row) {
    const auto range =
        kernels::visible_keys(host.mask, shape, row / kPackedRows, row % kPackedRows);
    begin.view(-1)[row] = range.begin;
    end.view(-1)[row] = range.end;
  }
  args.key_counts = end - begin;
  args.key_start = begin.index_select(1, rows);
  args.key_end = end.index_select(1, rows);
  args.q = args.q.index_select(2, rows);
  args.documents.reset();
  args.window.reset();
  args.causal = false;
}

TEST(HostMask, RowsMayHaveRangesOfTheirOwn) {
  const at::Tensor rows = at::tensor({30, 31, 3, 4, 5, 36, 20}, at::kLong);
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const bool composed : {false, true}) {
      const auto run = [&](const AttentionArgs& args) {
        return composed ? composed_backend().attention(args).out : attention(args).out;
      };
      PackedCase whole = packed_case(type), some = packed_case(type);
      take_rows(some.args, rows);
      const at::Tensor expected = run(whole.args).index_select(2, rows), out = run(some.args);
      const double bound = type == at::kDouble ? 1e-12 : 2e-5;
      EXPECT_LT(error_of(out, expected), bound);
      const at::Tensor weight = random(expected.sizes(), 7, type);
      out.backward(weight);
      expected.backward(weight);
      for (size_t i = 0; i < whole.leaves.size(); ++i)
        EXPECT_LT(error_of(some.leaves[i].grad(), whole.leaves[i].grad()), 10 * bound) << i;
    }
}

}  // namespace
}  // namespace tempera::ops
