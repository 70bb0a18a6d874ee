#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

// n and the position of every row from the mask. n is the number of keys that the row can see,
// never the padded or packed length; the position counts from 0 inside the row's own document and
// is -1 for padding.
namespace tempera {

// The mask of a self-attention, in the terms of ops::AttentionArgs.
struct SequenceMask {
  torch::Tensor documents = {};  // (B, documents) lengths; undefined: one a sequence
  torch::Tensor start = {};      // (B): rows before it are padding; undefined: none
  torch::Tensor end = {};        // (B): rows from it on are padding
  bool causal = false;
  std::optional<int64_t> window = {};

  bool is_packed_or_padded() const {
    return documents.defined() || start.defined() || end.defined();
  }
};

struct RowCounts {
  torch::Tensor n;         // (B, rows) int64
  torch::Tensor position;  // (B, rows) int64
};

// Of all rows of the sequences; queries that are only some of them (a chunk behind a cache) are a
// slice of it.
RowCounts sequence_rows(const SequenceMask& mask, int64_t batch, int64_t rows,
                        const torch::Device& device);

// Of the last `rows` rows of sequences that have `lengths` (B) rows in a cache, the new ones
// included.
RowCounts decode_rows(const torch::Tensor& lengths, int64_t rows, const torch::Tensor& start,
                      std::optional<int64_t> window);

// n (B, q_rows) of the queries of a cross-attention: the unmasked source rows of the same document.
// documents and key_documents are both given or both undefined.
torch::Tensor cross_counts(const torch::Tensor& documents, const torch::Tensor& key_documents,
                           const torch::Tensor& key_start, const torch::Tensor& key_end,
                           int64_t batch, int64_t q_rows, int64_t kv_rows,
                           const torch::Device& device);

}  // namespace tempera
