#include <algorithm>
#include <limits>
#include <vector>

#include "tempera/kernels/reference/attention.h"
#include "tempera/kernels/reference/row.h"
#include "tempera/kernels/validate.h"

namespace tempera::kernels::reference {
namespace {

template <class T>
void write_row(const AttentionParams<T>& p, const RowScales<T>& scales, const Row<T>& row,
               const AttentionOutputs<T>& outputs, Weights weights, int64_t b, int64_t h,
               int64_t i) {
  T* out = outputs.out.at(b, h, i);
  std::fill_n(out, p.shape.v_size, T{0});
  for (int64_t j = row.keys.begin; j < row.keys.end; ++j) {
    const auto at = static_cast<size_t>(j - row.keys.begin);
    const T weight = row.probability[at] * row.beside_sink * row.keep[at];
    add(rounded(weight * scales.v(b, row.kv_head, j), weights), p.v.at(b, row.kv_head, j), out,
        p.shape.v_size);
  }
  if (outputs.lse) *outputs.lse.at(b, h, i) = row.lse;
  if (outputs.max) *outputs.max.at(b, h, i) = row.max;
  if (outputs.entropy) *outputs.entropy.at(b, h, i) = row.entropy;
  if (outputs.head_max) outputs.head_max[h] = std::max(outputs.head_max[h], row.max);
}

template <class T>
void copy_rows(const DecodeParams<T>& params, Rows<const T> cache, int64_t size,
               std::vector<T>& storage, Rows<const T>& copy) {
  if (!cache) return;
  const Shape& shape = params.attention.shape;
  storage.assign(static_cast<size_t>(shape.batch * shape.kv_heads * shape.kv_rows * size), T{0});
  const Rows<T> to{storage.data(), shape.kv_heads * shape.kv_rows * size, shape.kv_rows * size,
                   size};
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.kv_heads; ++h)
      for (int64_t j = 0; j < params.lengths[b]; ++j) {
        int64_t block = b;
        int64_t row = j;
        if (params.block_table) {
          block = params.block_table[b * params.table_stride + j / params.block_size];
          row = j % params.block_size;
        }
        std::copy_n(cache.at(block, h, row), size, to.at(b, h, j));
      }
  copy = {to.data, to.batch, to.head, to.row};
}

}  // namespace

template <class T>
void forward(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs,
             Weights weights) {
  validate(params, outputs);
  const Shape& shape = params.shape;
  const RowScales<T> scales(params);
  if (outputs.head_max)
    std::fill_n(outputs.head_max, shape.q_heads, -std::numeric_limits<T>::infinity());
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.q_heads; ++h)
      for (int64_t i = 0; i < shape.q_rows; ++i)
        write_row(params, scales, attend(params, scales, b, h, i), outputs, weights, b, h, i);
}

// The cache is copied out into plain rows, and lengths and positions become explicit key ranges.
template <class T>
void decode(const DecodeParams<T>& params, const AttentionOutputs<T>& outputs, Weights weights) {
  validate(params, outputs);
  AttentionParams<T> plain = params.attention;
  const Shape& shape = plain.shape;
  std::vector<T> k, v, k_scale, v_scale;
  copy_rows(params, params.attention.k, shape.qk_size, k, plain.k);
  copy_rows(params, params.attention.v, shape.v_size, v, plain.v);
  copy_rows(params, params.attention.k_scale.rows, 1, k_scale, plain.k_scale.rows);
  copy_rows(params, params.attention.v_scale.rows, 1, v_scale, plain.v_scale.rows);

  std::vector<int32_t> begin, end;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.q_rows; ++i) {
      Mask mask = params.attention.mask;
      mask.query_offset = params.lengths[b] - shape.q_rows;
      const KeyRange keys = visible_keys(mask, shape, b, i);
      begin.push_back(static_cast<int32_t>(keys.begin));
      end.push_back(static_cast<int32_t>(std::min<int64_t>(keys.end, params.lengths[b])));
    }
  plain.mask = Mask{.key_begin = begin.data(), .key_end = end.data()};
  forward(plain, outputs, weights);
}

template void forward(const AttentionParams<double>&, const AttentionOutputs<double>&, Weights);
template void forward(const AttentionParams<float>&, const AttentionOutputs<float>&, Weights);
template void decode(const DecodeParams<double>&, const AttentionOutputs<double>&, Weights);
template void decode(const DecodeParams<float>&, const AttentionOutputs<float>&, Weights);

}  // namespace tempera::kernels::reference
