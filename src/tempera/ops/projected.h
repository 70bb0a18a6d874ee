#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "tempera/ops/scale.h"

// Attention from a layer's projections to the rows of its heads: norm, rotation, temperatures,
// cache and attention as one operation. What is done in which pass over memory, the backend of the
// device decides.
namespace tempera::ops {

// The heads of q, k or v in a projection (B, T, columns).
struct ProjectedOperand {
  at::Tensor projection = {};  // undefined: there are no such rows
  int64_t first = 0;           // the first of its heads, among those of the projection
  at::Tensor rows = {};        // (B, heads, T, size): these heads, no copy
  at::Tensor gain = {};        // of the norm: (size), or (heads * size) where it is over all heads
  RowScale scale = {};         // a recipe that names `rows` as its source reads them, un-normed
};

// The operand of `heads` heads of this size from head `first` on.
ProjectedOperand heads_of(const at::Tensor& projection, int64_t first, int64_t heads, int64_t size);

// Where the keys and values of earlier rows are, as they enter the products, with their scales. k
// and v have the type in which they are kept: that of the rows, bfloat16, or int8, whose scales
// then hold a factor for each row.
struct KeyCache {
  at::Tensor k, v;      // (B, Hkv, capacity, size)
  at::Tensor a_k, a_v;  // (B, Hkv, capacity); undefined: 1
  int64_t length = 0;   // rows in use; of paged sequences, by the longest
  // Paged: k and v are (blocks, Hkv, block size, size), a_k and a_v alike, and the next rows go
  // where it says. Undefined: contiguous.
  at::Tensor block_table = {};  // (B, n) int32: the blocks of each sequence in order
  at::Tensor slots = {};        // (B, T) int64: block * block size + row, for each new row

  int64_t capacity() const {
    return block_table.defined() ? block_table.size(1) * k.size(2) : k.size(2);
  }
};

enum class HeadNorm { kNone, kEachHead, kAllHeads };

struct ProjectedArgs {
  ProjectedOperand q = {}, k = {}, v = {};
  HeadNorm norm = HeadNorm::kNone;            // RMSNorm of q and k
  double epsilon = 0;                         // of the norm
  at::Tensor cos = {}, sin = {};              // (length, pairs), as rotary() takes them, of q and k
  at::Tensor positions = {};                  // (B, T)
  at::Tensor q_n = {}, k_n = {};              // (B, T): the keys that a row of q, of k, sees
  AttentionArgs attention = {};               // its mask, limits and wants; not q, k, v and scales
  at::Tensor cache_lengths = {};              // (B) int32: rows of the cache, these included
  at::Tensor pair_rows = {}, pair_keys = {};  // (B, pairs) int64: whose weights are wanted
};

struct ProjectedResult {
  at::Tensor out;  // (B, H, T, size), laid out as (B, T, H, size)
  // (B, H, pairs) where pairs are given: the weight of the row on the key, and the entropy of the
  // row's weights in nats.
  at::Tensor weight = {}, entropy = {};
  // (B, H, T) of every row, where `attention` wants them; without a cache.
  at::Tensor row_entropy = {}, row_max = {};
};

// With a cache the new keys and values are put into it, and the rows see all that it then holds. Of
// paged sequences there is one, or each has one new row.
ProjectedResult attend(const ProjectedArgs& args, KeyCache* cache = nullptr);

// Puts the keys and values into the cache; q is not read.
void remember(const ProjectedArgs& args, KeyCache& cache);

}  // namespace tempera::ops
