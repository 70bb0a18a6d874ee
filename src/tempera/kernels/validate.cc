#include "tempera/kernels/validate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "tempera/base/error.h"
#include "tempera/kernels/extent.h"

namespace tempera::kernels {
namespace {

template <class T>
void check_size(const char* name, int64_t size) {
  if constexpr (std::is_same_v<T, double>) {
    TEMPERA_CHECK(size >= 1, name, ": ", size, " given, at least 1 expected");
  } else {
    TEMPERA_CHECK(size >= 8 && size <= 256 && size % 8 == 0, name, ": ", size,
                  " given, a multiple of 8 up to 256 expected; pad the heads with zeros, or "
                  "compute in double precision, which takes any size");
  }
}

template <class T>
void check_shape(const Shape& s) {
  TEMPERA_CHECK(s.batch >= 0 && s.q_rows >= 0 && s.kv_rows >= 0, "negative shape: batch ", s.batch,
                ", query rows ", s.q_rows, ", key rows ", s.kv_rows);
  TEMPERA_CHECK(s.kv_rows <= std::numeric_limits<int32_t>::max() &&
                    s.q_rows <= std::numeric_limits<int32_t>::max(),
                "rows: ", s.q_rows, " of queries and ", s.kv_rows,
                " of keys given, fewer than 2^31 expected");
  TEMPERA_CHECK(s.q_heads >= 1 && s.kv_heads >= 1, "heads: ", s.q_heads, " of queries and ",
                s.kv_heads, " of keys given, at least 1 expected");
  TEMPERA_CHECK(s.q_heads % s.kv_heads == 0, "query heads: ", s.q_heads,
                " given, a multiple of the ", s.kv_heads, " key heads expected");
  check_size<T>("size of a query and key row", s.qk_size);
  check_size<T>("size of a value row", s.v_size);
}

void check_ranges(const char* name, const int32_t* values, const Shape& s) {
  if (!values) return;
  for (int64_t at = 0; at < s.batch * s.q_rows; ++at)
    TEMPERA_CHECK(values[at] >= 0 && values[at] <= s.kv_rows, name, " of sequence ", at / s.q_rows,
                  ", row ", at % s.q_rows, ": ", values[at], " given, 0 to ", s.kv_rows,
                  " (the key rows) expected");
}

void check_mask(const Mask& mask, const Shape& s) {
  TEMPERA_CHECK(mask.window >= 0, "window: ", mask.window,
                " given, a positive number of keys expected, or 0 for no window");
  check_ranges("key_begin", mask.key_begin, s);
  check_ranges("key_end", mask.key_end, s);
}

template <class T>
void check_present(const char* name, const Rows<T>& rows, const Extent& extent) {
  TEMPERA_CHECK(rows || extent.empty(), name, " is required, and absent");
}

// Two different elements must not share memory. Enough for every layout that permutes or cuts a
// dense tensor.
template <class T>
void check_output(const char* name, const Rows<T>& rows, const Extent& extent) {
  if (!rows || extent.empty()) return;
  struct Dimension {
    int64_t stride;
    int64_t count;
  };
  std::array<Dimension, 4> dimensions = {{{1, extent.size},
                                          {rows.row, extent.rows},
                                          {rows.head, extent.heads},
                                          {rows.batch, extent.batch}}};
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& x, const Dimension& y) { return x.stride < y.stride; });
  int64_t last = -1;  // the last element that the dimensions so far reach
  for (const Dimension& dimension : dimensions) {
    if (dimension.count <= 1) continue;
    const int64_t reach = std::max<int64_t>(last, 0);
    TEMPERA_CHECK(dimension.stride > reach, name, ": strides (", rows.batch, ", ", rows.head, ", ",
                  rows.row, ", 1) make its elements overlap at shape (", extent.batch, ", ",
                  extent.heads, ", ", extent.rows, ", ", extent.size, ")");
    last = reach + dimension.stride * (dimension.count - 1);
  }
}

template <class T, class C>
void check_scale(const char* name, const Scale<T>& scale, const Rows<const C>& operand,
                 const Extent& extent) {
  const Recipe<T>& recipe = scale.recipe;
  TEMPERA_CHECK(!recipe.g || recipe.log_n || extent.empty(), name,
                " recipe: g is given and needs log_n, the logarithm of every row's visible keys");
  TEMPERA_CHECK(!recipe.s || recipe.c || recipe.w || recipe.g, name,
                " recipe: s alone makes every scale 0; give a constant as c");
  if (!recipe.w) return;
  TEMPERA_CHECK(recipe.size >= 1, name, " recipe: w is given, and its source has ", recipe.size,
                " columns; at least 1 expected");
  check_present("the source of a recipe with w", recipe.source, extent);
  if (!recipe.source || static_cast<const void*>(recipe.source.data) != operand.data) return;
  TEMPERA_CHECK(recipe.size == extent.size && recipe.source.batch == operand.batch &&
                    recipe.source.head == operand.head && recipe.source.row == operand.row,
                name,
                " recipe: its source starts where its operand does, and has other strides or ",
                recipe.size, " columns instead of ", extent.size);
}

template <class T, class C>
void check_params(const AttentionParams<T, C>& p) {
  const Shape& s = p.shape;
  check_shape<T>(s);
  check_mask(p.mask, s);
  TEMPERA_CHECK(p.cap >= 0, "logit cap: ", p.cap,
                " given, a positive number expected, or 0 for no cap");
  TEMPERA_CHECK(p.dropout >= 0 && p.dropout < 1, "dropout: ", p.dropout,
                " given, at least 0 and less than 1 expected");
  check_present("q", p.q, query_extent(s, s.qk_size));
  check_present("k", p.k, key_extent(s, s.qk_size));
  check_present("v", p.v, key_extent(s, s.v_size));
  check_scale("q_scale", p.q_scale, p.q, query_extent(s, s.qk_size));
  check_scale("k_scale", p.k_scale, p.k, key_extent(s, s.qk_size));
  check_scale("v_scale", p.v_scale, p.v, key_extent(s, s.v_size));
}

template <class T>
void check_outputs(const Shape& s, const AttentionOutputs<T>& outputs) {
  check_present("out", outputs.out, query_extent(s, s.v_size));
  check_output("out", outputs.out, query_extent(s, s.v_size));
  check_output("lse", outputs.lse, query_extent(s, 1));
  check_output("max", outputs.max, query_extent(s, 1));
  check_output("entropy", outputs.entropy, query_extent(s, 1));
}

template <class T>
void check_scale_gradient(const char* name, const Scale<T>& scale, const Rows<const T>& operand,
                          const ScaleGradient<T>& gradient, const Extent& extent) {
  const Recipe<T>& recipe = scale.recipe;
  TEMPERA_CHECK(!gradient.rows || scale.rows, name, ": a gradient of absent row scales is wanted");
  TEMPERA_CHECK((!gradient.w || recipe.w) && (!gradient.g || recipe.g) &&
                    (!gradient.c || recipe.c) && (!gradient.s || recipe.s),
                name, " recipe: a gradient of an absent w, g, c or s is wanted");
  TEMPERA_CHECK(!gradient.source || recipe.w, name,
                " recipe: a gradient of its source is wanted, and no w reads the source");
  TEMPERA_CHECK(!gradient.source || recipe.source.data != operand.data, name,
                " recipe: its source is the operand itself, whose gradient includes the source's; "
                "leave the gradient of the source absent");
  Extent rows = extent;
  rows.size = 1;
  check_output(name, gradient.rows, rows);
  rows.size = recipe.size;
  check_output(name, gradient.source, rows);
}

}  // namespace

template <class T>
void validate(const AttentionParams<T>& params, const AttentionOutputs<T>& outputs) {
  check_params(params);
  check_outputs(params.shape, outputs);
}

template <class T>
void validate(const AttentionParams<T>& params, const AttentionGradients<T>& gradients) {
  check_params(params);
  const Shape& s = params.shape;
  const Extent query = query_extent(s, s.qk_size);
  const Extent key = key_extent(s, s.qk_size);
  const Extent value = key_extent(s, s.v_size);
  check_present("the output of the forward pass", gradients.out, query);
  check_present("the lse of the forward pass", gradients.lse, query);
  check_present("the gradient of the output", gradients.d_out, query);
  check_output("the gradient of q", gradients.q, query);
  check_output("the gradient of k", gradients.k, key);
  check_output("the gradient of v", gradients.v, value);
  check_scale_gradient("q_scale", params.q_scale, params.q, gradients.q_scale, query);
  check_scale_gradient("k_scale", params.k_scale, params.k, gradients.k_scale, key);
  check_scale_gradient("v_scale", params.v_scale, params.v, gradients.v_scale, value);
  TEMPERA_CHECK(!gradients.bias || params.bias, "a gradient of an absent bias is wanted");
  TEMPERA_CHECK(!gradients.post || params.post, "a gradient of an absent post is wanted");
  TEMPERA_CHECK(!gradients.sinks || params.sinks, "a gradient of absent sinks is wanted");
  check_output("the gradient of post", gradients.post, query_extent(s, 1));
  // Dimensions of stride 0 are summed over: they exist once.
  check_output("the gradient of the bias", gradients.bias,
               {gradients.bias.batch == 0 ? 1 : s.batch, gradients.bias.head == 0 ? 1 : s.q_heads,
                gradients.bias.row == 0 ? 1 : s.q_rows, s.kv_rows});
}

template <class T, class C>
void validate(const DecodeParams<T, C>& params, const AttentionOutputs<T>& outputs) {
  const AttentionParams<T, C>& attention = params.attention;
  const Shape& s = attention.shape;
  check_params(attention);
  check_outputs(s, outputs);
  TEMPERA_CHECK(
      !attention.k_scale.recipe.active() && !attention.v_scale.recipe.active(),
      "decode takes finished scales of the cached keys and values, and a recipe is given");
  TEMPERA_CHECK(params.lengths || s.batch == 0, "lengths are required, and absent");
  TEMPERA_CHECK(!params.block_table || params.block_size >= 1, "block size: ", params.block_size,
                " given, at least 1 expected with a block table");
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t length = params.lengths[b];
    TEMPERA_CHECK(length >= 0 && length <= s.kv_rows, "length of sequence ", b, ": ", length,
                  " given, 0 to ", s.kv_rows, " (the capacity of the cache) expected");
    if (!params.block_table) continue;
    const int64_t blocks = (length + params.block_size - 1) / params.block_size;
    TEMPERA_CHECK(blocks <= params.table_stride, "block table of sequence ", b, ": ",
                  params.table_stride, " entries given, ", blocks, " needed for ", length, " rows");
    for (int64_t at = 0; at < blocks; ++at)
      TEMPERA_CHECK(params.block_table[b * params.table_stride + at] >= 0,
                    "block table of sequence ", b, ", entry ", at, ": ",
                    params.block_table[b * params.table_stride + at],
                    " given, at least 0 expected");
  }
}

#define TEMPERA_INSTANTIATE(T)                                                     \
  template void validate(const AttentionParams<T>&, const AttentionOutputs<T>&);   \
  template void validate(const AttentionParams<T>&, const AttentionGradients<T>&); \
  template void validate(const DecodeParams<T>&, const AttentionOutputs<T>&);

TEMPERA_INSTANTIATE(double)
TEMPERA_INSTANTIATE(float)
TEMPERA_INSTANTIATE(BFloat16)
template void validate(const DecodeParams<float, BFloat16>&, const AttentionOutputs<float>&);
template void validate(const DecodeParams<float, int8_t>&, const AttentionOutputs<float>&);
template void validate(const DecodeParams<BFloat16, int8_t>&, const AttentionOutputs<BFloat16>&);
#undef TEMPERA_INSTANTIATE

}  // namespace tempera::kernels
