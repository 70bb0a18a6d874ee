#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "tempera/ops/projected.h"
#include "tempera/temperature/method.h"
#include "tempera/temperature/rows.h"
#include "tempera/temperature/state.h"

namespace tempera::nn {

// Where the rows of a pass over paged sequences are.
struct PagedPlace {
  torch::Tensor table;   // (B, n) int32: the blocks of each sequence in order
  torch::Tensor slots;   // (B, T) int64: block * block size + row, of the new rows
  torch::Tensor before;  // (B) int64: the slot in front of the first new row; -1: none
  int64_t length = 0;    // of the longest sequence, without the new rows
};

// What an attention layer keeps of the rows it has seen: keys and values as ops::attend() leaves
// them, and the method's own state.
class LayerCache {
 public:
  LayerCache(const Method& method, int64_t batch, int64_t capacity,
             const torch::TensorOptions& options);
  // In blocks of so many rows, which belong to no sequence until place() says so.
  static LayerCache paged(const Method& method, int64_t blocks, int64_t block_size,
                          const torch::TensorOptions& options);
  // Bytes of the keys and values of a row that are kept in this type.
  static int64_t row_bytes(const Method& method, torch::ScalarType type);
  // Of a paged cache, before a pass.
  void place(const PagedPlace& place);

  ops::KeyCache& keys() { return keys_; }
  int64_t length() const { return keys_.length; }
  // (B, width) of the last row of every sequence; undefined: there is none.
  torch::Tensor last_state() const;
  // Of the rows whose scales these are.
  void append_state(const RowScales& scales);

  void truncate(int64_t length);
  // Of a cross-attention, whose keys and values stay as they are: the state alone follows the rows
  // that read them.
  void truncate_state(int64_t length) { state_.truncate(length); }
  // An independent copy of the named sequences, in that order.
  LayerCache select(const std::vector<int64_t>& sequences) const;

 private:
  ops::KeyCache keys_;
  MethodState state_;
  torch::Tensor state_blocks_;  // paged: (blocks * block size, width) float64
  torch::Tensor before_;        // paged: see PagedPlace
};

// The caches of a model's layers and the tokens that are in them. All sequences have the same
// length; shorter ones have padding in front.
class ModelCache {
 public:
  // start: (B) how many rows of padding each sequence begins with; undefined: none.
  ModelCache(std::vector<LayerCache> layers, torch::Tensor tokens, torch::Tensor start)
      : layers_(std::move(layers)), tokens_(std::move(tokens)), start_(std::move(start)) {}

  int64_t batch() const { return tokens_.size(0); }
  int64_t length() const { return length_; }
  int64_t capacity() const { return tokens_.size(1); }
  const torch::Tensor& start() const { return start_; }
  // (B, length())
  torch::Tensor tokens() const { return tokens_.narrow(1, 0, length_); }
  LayerCache& layer(int64_t index) { return layers_[static_cast<size_t>(index)]; }
  // Of a model that reads a source: its keys and values in every layer, and which of them count.
  void set_source(std::vector<LayerCache> layers, SequenceMask mask);
  bool has_source() const { return !source_layers_.empty(); }
  LayerCache& source_layer(int64_t index) { return source_layers_[static_cast<size_t>(index)]; }
  const SequenceMask& source_mask() const { return source_mask_; }

  // How many rows the text has that is read first. Where rotary frequencies depend on the length of
  // a sequence, the pieces of this text have those of the whole, as one pass over it; a row behind
  // it has those of the length that it makes.
  void set_prompt_rows(int64_t rows) { prompt_rows_ = rows; }
  int64_t prompt_rows() const { return prompt_rows_; }

  // The rows (B, rows) of a pass that has gone through all layers.
  void append_tokens(const torch::Tensor& tokens);
  // Forgets the rows from `length` on, in all layers.
  void truncate(int64_t length);
  // An independent copy.
  ModelCache fork() const;
  // An independent copy of the named sequences, in that order: beams, or one prompt for several
  // answers.
  ModelCache select(const std::vector<int64_t>& sequences) const;

 private:
  std::vector<LayerCache> layers_, source_layers_;
  SequenceMask source_mask_;
  torch::Tensor tokens_;  // (B, capacity) int64
  torch::Tensor start_;
  int64_t length_ = 0;
  int64_t prompt_rows_ = 0;
};

}  // namespace tempera::nn
