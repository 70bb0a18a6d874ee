#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tempera::ops {

// a = s * (c + tanh(<w, gelu(source)>) + g * log n) per head and row, computed inside the attention
// pass and multiplied to the finished row scales. Every member is optional (undefined: no such
// term; s: 1).
struct Recipe {
  at::Tensor
      source;    // (B, heads, rows, size): what w reads; undefined: the operand (q, k or v) itself
  at::Tensor w;  // (heads, size)
  at::Tensor g, c, s;       // (heads)
  bool g_is_logit = false;  // sigmoid(g) stands for g
};

// out = softmax(cap(scale * a_q a_k <q, k> + bias) * post) (a_v v), masked last. An undefined
// tensor is absent.
//
// q, k and v share one dtype (float32, bfloat16; float64 goes to the naive reference) and may have
// any strides. All other floating-point tensors are used as float32 (float64 for float64) and are
// converted when given otherwise; their gradients come in the given dtype.
struct AttentionArgs {
  at::Tensor q;                         // (B, H, Tq, D)
  at::Tensor k;                         // (B, Hkv, Tk, D); Hkv divides H
  at::Tensor v;                         // (B, Hkv, Tk, Dv)
  at::Tensor a_q;                       // broadcasts to (B, H, Tq)
  at::Tensor a_k, a_v;                  // broadcast to (B, Hkv, Tk)
  Recipe q_recipe, k_recipe, v_recipe;  // n of a query row: the keys it sees
  at::Tensor bias;                      // (1 or B, 1 or H, Tq, Tk)
  at::Tensor sinks;                     // (H): a logit that takes weight and has no value
  at::Tensor post;                      // broadcasts to (B, H, Tq); multiplies the capped logits
  at::Tensor key_counts;  // (B, Tk) n of the key rows; default: the queries' own, in self-attention
  at::Tensor documents;   // (B, documents) lengths, 0 where a sequence has fewer; they sum to Tq
  at::Tensor key_documents;  // likewise for the keys of cross-attention; they sum to Tk
  // (B): the keys outside [start, end) are padding. (B, Tq), without documents: each row's own
  // keys.
  at::Tensor key_start, key_end;
  bool causal = false;
  std::optional<int64_t> window;  // W >= 1: |position of the query - key| < W
  std::optional<int64_t>
      query_offset;  // position of query 0 among the keys; default: Tk - Tq if causal, else 0
  std::optional<double> scale;  // default: 1 / sqrt(D)
  double cap = 0;               // > 0: cap * tanh(logit / cap)
  double dropout = 0;           // of the probabilities, in [0, 1)
  int64_t seed = 0;             // of the dropout
  bool want_max = false;
  bool want_entropy = false;
  bool want_head_max = false;
};

// lse, max and entropy exclude the sink and the dropout. A row that sees no key: out 0, lse and max
// -inf, entropy 0. Gradients flow through out and lse. What was not asked for is undefined, and so
// is lse on CUDA.
struct AttentionResult {
  at::Tensor out;       // (B, H, Tq, Dv), laid out as (B, Tq, H, Dv): transpose(1, 2) is contiguous
  at::Tensor lse;       // (B, H, Tq)
  at::Tensor max;       // (B, H, Tq): the largest logit
  at::Tensor entropy;   // (B, H, Tq)
  at::Tensor head_max;  // (H): the largest logit over batch and rows
};

AttentionResult attention(const AttentionArgs& args);

// A few new query rows against a cache of keys and values; no gradients. The last query row stands
// at the last key in use. Contiguous: k is (B, Hkv, capacity, D). Paged: k is (blocks, Hkv,
// block_size, D) and block_table (B, n) names the blocks of each sequence in order. a_k and a_v are
// laid out like k and v without the last dimension. k and v are of one type: of q's, or bfloat16 or
// int8 beside any q. Of int8, a_k and a_v have what makes keys and values of the whole numbers.
struct DecodeArgs {
  at::Tensor q;  // (B, H, rows, D)
  at::Tensor k, v;
  at::Tensor lengths;      // (B) int32: rows of the cache in use, the new ones included
  at::Tensor block_table;  // (B, n) int32
  at::Tensor a_q, a_k, a_v;
  Recipe q_recipe;
  at::Tensor bias;  // (1 or B, 1 or H, rows, capacity); paged: capacity = n * block_size
  at::Tensor sinks, post;
  at::Tensor key_start;  // (B): keys before it are padding
  bool causal = true;
  std::optional<int64_t> window;
  std::optional<double> scale;
  double cap = 0;
  bool want_max = false;
  bool want_entropy = false;
  bool want_head_max = false;
};

AttentionResult decode(const DecodeArgs& args);

}  // namespace tempera::ops
