#include "tempera/lens/weights.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::lens {
namespace {

using torch::Tensor;

constexpr float kNever = -std::numeric_limits<float>::infinity();  // the logarithm of no weight
constexpr int64_t kRowsAtOnce = 256;                               // of the weights that are held
constexpr int64_t kKeysAtOnce = 2048;  // so that a block stays in a core's cache

void check_span(const char* what, Span span, int64_t all) {
  TEMPERA_CHECK(
      span.first >= 0 && span.count > 0 && span.count <= all && span.first <= all - span.count,
      what, " ", span.first, " to ", span.first + span.count - 1, " asked for, and there are ",
      all);
}

void check_part(const Attention& attention, int64_t head, Span rows, Span keys) {
  TEMPERA_CHECK(head >= 0 && head < attention.heads(), "head ", head, " asked for, and there are ",
                attention.heads());
  check_span("rows", rows, attention.rows());
  check_span("keys", keys, attention.keys());
}

void hide_unseen(const Attention& attention, Span rows, Span keys, Tensor& log_weight) {
  const int64_t end = keys.first + keys.count;
  // Every row sees the keys in front of the first row.
  const int64_t first = attention.window ? keys.first : std::max(keys.first, rows.first + 1);
  if (first >= end || (!attention.causal && !attention.window)) return;
  const Tensor row = torch::arange(rows.first, rows.first + rows.count, torch::kInt32).unsqueeze(1);
  const Tensor key = torch::arange(first, end, torch::kInt32).unsqueeze(0);
  Tensor part = log_weight.narrow(1, first - keys.first, end - first);
  if (attention.causal) part.masked_fill_(key > row, kNever);
  if (attention.window) part.masked_fill_((key - row).abs() >= *attention.window, kNever);
}

// No key after it is seen by any of the rows.
int64_t seen_end(const Attention& attention, Span rows) {
  if (!attention.causal) return attention.keys();
  return std::min(attention.keys(), rows.first + rows.count);
}

// Rows of q or k of one head, in float32.
Tensor rows_of(const Tensor& kept, const Tensor& step, int64_t head, Span span) {
  const Tensor rows = kept[head].narrow(0, span.first, span.count).to(torch::kFloat32);
  if (!step.defined()) return rows;
  return rows * step[head].narrow(0, span.first, span.count).unsqueeze(1);
}

// Logarithms: the largest of a cell is found without the exponential of all.
Tensor log_weights_of(const Attention& attention, int64_t head, Span rows, Span keys) {
  const int64_t group = attention.heads() / attention.k.size(0);
  const Tensor q = rows_of(attention.q, attention.q_step, head, rows);
  const Tensor k = rows_of(attention.k, attention.k_step, head / group, keys);
  Tensor logit = torch::matmul(q, k.t());
  if (attention.bias.defined())
    logit.add_(attention.bias[attention.bias.size(0) == 1 ? 0 : head]
                   .narrow(0, rows.first, rows.count)
                   .narrow(1, keys.first, keys.count));
  if (attention.cap > 0) logit.div_(attention.cap).tanh_().mul_(attention.cap);
  const Tensor lse = attention.lse[head].narrow(0, rows.first, rows.count).unsqueeze(1);
  logit.sub_(lse);
  hide_unseen(attention, rows, keys, logit);
  return logit;
}

// Squares of cells of a block of weights, which need not fill them.
Tensor pooled(const Tensor& block, int64_t cell) {
  const int64_t rows = (block.size(0) + cell - 1) / cell, keys = (block.size(1) + cell - 1) / cell;
  const Tensor padded = torch::constant_pad_nd(
      block, {0, keys * cell - block.size(1), 0, rows * cell - block.size(0)}, kNever);
  return padded.view({rows, cell, keys * cell}).amax(1).view({rows, keys, cell}).amax(2);
}

int64_t whole_cells(int64_t at_once, int64_t cell) {
  return std::max<int64_t>(at_once / cell, 1) * cell;
}

}  // namespace

Tensor weights(const Attention& attention, int64_t head, Span rows, Span keys) {
  check_part(attention, head, rows, keys);
  const torch::NoGradGuard no_grad;
  return log_weights_of(attention, head, rows, keys).exp_();
}

Tensor maxima(const Attention& attention, int64_t head, Span rows, Span keys, int64_t cell) {
  check_part(attention, head, rows, keys);
  TEMPERA_CHECK(cell > 0, "cells of ", cell, " tokens asked for; expected 1 or more");
  const torch::NoGradGuard no_grad;
  Tensor picture = torch::zeros({(rows.count + cell - 1) / cell, (keys.count + cell - 1) / cell});
  const int64_t row_step = whole_cells(kRowsAtOnce, cell),
                key_step = whole_cells(kKeysAtOnce, cell);
  const auto fill = [&](int64_t row) {
    const Span some{rows.first + row, std::min(row_step, rows.count - row)};
    const int64_t end = std::min(keys.count, seen_end(attention, some) - keys.first);
    for (int64_t key = 0; key < end; key += key_step) {
      const Span part{keys.first + key, std::min(key_step, end - key)};
      const Tensor cells = pooled(log_weights_of(attention, head, some, part), cell).exp_();
      picture.narrow(0, row / cell, cells.size(0))
          .narrow(1, key / cell, cells.size(1))
          .copy_(cells);
    }
  };
  at::parallel_for(0, (rows.count + row_step - 1) / row_step, 1, [&](int64_t first, int64_t end) {
    for (int64_t block = first; block < end; ++block) fill(block * row_step);
  });
  return picture;
}

Digest digest(const Attention& attention, int64_t head, int64_t cell, int64_t most) {
  check_part(attention, head, {0, 1}, {0, 1});
  TEMPERA_CHECK(cell > 0 && most > 0 && most <= attention.keys(), "cells of ", cell, " tokens and ",
                most, " keys a row asked for; both are at least 1, and there are ",
                attention.keys(), " keys");
  const torch::NoGradGuard no_grad;
  const int64_t rows = attention.rows(), keys = attention.keys();
  Digest made{torch::zeros({(rows + cell - 1) / cell, (keys + cell - 1) / cell}),
              torch::zeros({rows, most}, torch::kInt64), torch::zeros({rows, most})};
  const int64_t step = whole_cells(kRowsAtOnce, cell);
  for (int64_t row = 0; row < rows; row += step) {
    const Span some{row, std::min(step, rows - row)};
    const int64_t end = seen_end(attention, some);
    const Tensor block = log_weights_of(attention, head, some, {0, end});
    const Tensor cells = pooled(block, cell).exp_();
    made.maxima.narrow(0, row / cell, cells.size(0)).narrow(1, 0, cells.size(1)).copy_(cells);
    const int64_t found = std::min(most, end);
    const auto [weight, key] = found == 1 ? block.max(1, /*keepdim=*/true) : block.topk(found, 1);
    made.top_key.narrow(0, row, some.count).narrow(1, 0, found).copy_(key);
    made.top_weight.narrow(0, row, some.count).narrow(1, 0, found).copy_(weight.exp());
  }
  return made;
}

}  // namespace tempera::lens
