#include "tempera/ops/composed/masked.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tempera/ops/scale.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

at::Tensor rows_of_bias(const at::Tensor& bias, int64_t from, int64_t count) {
  return bias.defined() && bias.size(2) > 1 ? bias.narrow(2, from, count) : bias;
}

MaskedInputs rows_of(const MaskedInputs& in, int64_t from, int64_t count) {
  return {in.q.narrow(2, from, count), in.k, in.v, rows_of_bias(in.bias, from, count)};
}
// The same numbers as leaves of a graph of their own.
MaskedInputs detached(const MaskedInputs& in, bool with_bias) {
  const auto leaf = [](const at::Tensor& tensor) { return tensor.detach().requires_grad_(); };
  return {leaf(in.q), leaf(in.k), leaf(in.v), with_bias ? leaf(in.bias) : in.bias};
}
std::vector<at::Tensor> learned(const MaskedInputs& in, bool with_bias) {
  std::vector<at::Tensor> tensors = {in.q, in.k, in.v};
  if (with_bias) tensors.push_back(in.bias);
  return tensors;
}

at::Tensor composed_mask(const at::Tensor& bias, const VisibleKeys& keys, const at::Tensor& k) {
  // A row that sees nothing reads everything here and is cleared afterwards: no NaN, no gradient.
  const at::Tensor mask = keys.seen(k.size(2)).logical_or(keys.none());
  if (!bias.defined()) return mask;
  return bias.to(k.scalar_type())
      .masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor masked_rows(const MaskedInputs& in, const VisibleKeys& keys,
                       std::optional<double> scale) {
  return library_attention(in, composed_mask(in.bias, keys, in.k), /*causal=*/false, scale)
      .masked_fill(keys.none(), 0);
}

// How many query rows have this many logits.
int64_t rows_at_once(const at::Tensor& q, const at::Tensor& k) {
  constexpr int64_t kLogitsAtOnce = 1 << 26;
  const int64_t logits = std::max<int64_t>(q.size(0) * q.size(1) * k.size(2), 1);
  return std::max<int64_t>(kLogitsAtOnce / logits, 1);
}

// Some rows at a time, and once more in the backward pass: a mask is as large as the logits of one
// head, and libtorch would keep those of all rows.
struct MaskedPieces : torch::autograd::Function<MaskedPieces> {
  using Variables = torch::autograd::variable_list;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& bias, const VisibleKeys& keys,
                            std::optional<double> scale) {
    const MaskedInputs in{q, k, v, bias.value_or(at::Tensor())};
    context->save_for_backward({q, k, v, in.bias, keys.first, keys.last});
    context->saved_data["scale"] = scale;
    std::vector<at::Tensor> pieces;
    for_pieces(q, k, [&](int64_t from, int64_t count) {
      pieces.push_back(masked_rows(rows_of(in, from, count), keys.rows(from, count), scale));
    });
    return at::cat(pieces, 2);
  }

  static Variables backward(torch::autograd::AutogradContext* context, const Variables& d) {
    const Variables saved = context->get_saved_variables();
    const MaskedInputs in{saved[0], saved[1], saved[2], saved[3]};
    const VisibleKeys keys{saved[4], saved[5], {}};
    const auto scale = context->saved_data["scale"].toOptional<double>();
    MaskedInputs sums{at::empty_like(in.q), at::zeros_like(in.k), at::zeros_like(in.v), {}};
    const bool with_bias = in.bias.defined() && in.bias.requires_grad();
    if (with_bias) sums.bias = at::zeros_like(in.bias);
    for_pieces(in.q, in.k, [&](int64_t from, int64_t count) {
      const at::AutoGradMode with_gradients(true);
      MaskedInputs piece = detached(rows_of(in, from, count), with_bias);
      const at::Tensor out = masked_rows(piece, keys.rows(from, count), scale);
      const Variables g =
          torch::autograd::grad({out}, learned(piece, with_bias), {d[0].narrow(2, from, count)});
      const at::NoGradGuard no_grad;
      sums.q.narrow(2, from, count).copy_(g[0]);
      sums.k.add_(g[1]);
      sums.v.add_(g[2]);
      if (with_bias) rows_of_bias(sums.bias, from, count).add_(g[3]);
    });
    return {sums.q, sums.k, sums.v, sums.bias, at::Tensor(), at::Tensor()};
  }

 private:
  template <class Piece>
  static void for_pieces(const at::Tensor& q, const at::Tensor& k, const Piece& piece) {
    const int64_t step = rows_at_once(q, k);
    for (int64_t from = 0; from < q.size(2); from += step)
      piece(from, std::min(step, q.size(2) - from));
  }
};

}  // namespace

VisibleKeys visible(const std::vector<kernels::KeyRange>& ranges, const kernels::Shape& shape,
                    const at::Tensor& q) {
  const at::TensorOptions index = at::TensorOptions().dtype(at::kLong);
  const at::Tensor host = at::empty({2, shape.batch, 1, shape.q_rows, 1}, index);
  int64_t* begin = host.mutable_data_ptr<int64_t>();
  int64_t* end = begin + ranges.size();
  for (size_t row = 0; row < ranges.size(); ++row) {
    begin[row] = ranges[row].begin;
    end[row] = ranges[row].end;
  }
  const at::Tensor both = host.to(q.device());
  const at::Tensor first = both[0], last = both[1];
  const at::Tensor count = (last - first).clamp_min(1).view({shape.batch, shape.q_rows});
  return {first, last, count.to(scale_type(q.scalar_type())).log()};
}

std::vector<kernels::KeyRange> visible_keys(const kernels::Mask& mask,
                                            const kernels::Shape& shape) {
  std::vector<kernels::KeyRange> ranges;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.q_rows; ++i)
      ranges.push_back(kernels::visible_keys(mask, shape, b, i));
  return ranges;
}

at::Tensor library_attention(const MaskedInputs& in, const at::Tensor& mask, bool causal,
                             std::optional<double> given_scale) {
  const auto& [q, k, v, bias] = in;
  const int64_t heads = q.size(1);
  const auto whole = [&](const at::Tensor& rows) {
    const int64_t groups = heads / rows.size(1), missing = (8 - rows.size(3) % 8) % 8;
    const at::Tensor all = groups > 1 ? rows.repeat_interleave(groups, 1) : rows;
    return missing > 0 ? at::constant_pad_nd(all, {0, missing}) : all;
  };
  const double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor out = at::scaled_dot_product_attention(
      whole(q), whole(k), whole(v), mask.defined() ? std::optional(mask) : std::nullopt,
      /*dropout_p=*/0, causal, scale);
  return out.size(3) == v.size(3) ? out : out.narrow(3, 0, v.size(3));
}

at::Tensor masked_attention(const MaskedInputs& in, const VisibleKeys& keys,
                            std::optional<double> scale) {
  if (in.q.size(2) <= rows_at_once(in.q, in.k)) return masked_rows(in, keys, scale);
  return MaskedPieces::apply(in.q, in.k, in.v, maybe(in.bias), keys, scale);
}

Statistics statistics(const MaskedInputs& in, const VisibleKeys& keys,
                      std::optional<double> given_scale) {
  const at::Tensor &q = in.q, &k = in.k;
  const at::ScalarType real = scale_type(q.scalar_type());
  const double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor columns =
      k.to(real).repeat_interleave(q.size(1) / k.size(1), 1).transpose(2, 3) * scale;
  // The logits of all rows may not fit.
  const int64_t step = rows_at_once(q, k);
  std::vector<at::Tensor> lse, entropy, max;
  for (int64_t first = 0; first == 0 || first < q.size(2); first += step) {
    const int64_t count = std::min(step, q.size(2) - first);
    at::Tensor logits = q.narrow(2, first, count).to(real).matmul(columns);
    if (in.bias.defined()) logits = logits + rows_of_bias(in.bias, first, count).to(real);
    logits = logits.masked_fill(keys.rows(first, count).seen(k.size(2)).logical_not(),
                                -std::numeric_limits<double>::infinity());
    lse.push_back(logits.logsumexp(-1));
    max.push_back(k.size(2) > 0 ? logits.amax(-1) : lse.back());
    const at::Tensor finite = lse.back().masked_fill(lse.back().isinf(), 0);
    const at::Tensor weights = (logits - finite.unsqueeze(-1)).exp();
    entropy.push_back(finite - (weights * logits.masked_fill(weights.eq(0), 0)).sum(-1));
  }
  return {at::cat(lse, 2), at::cat(entropy, 2), at::cat(max, 2)};
}

}  // namespace tempera::ops
