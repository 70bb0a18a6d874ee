#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "tempera/nn/cache.h"

namespace tempera::nn {

// The caches of a model's layers for many sequences that come and go: memory in blocks of rows.
// Which block belongs to whom the caller knows; one that is full may belong to several sequences
// that begin alike.
class PagedCache {
 public:
  PagedCache(std::vector<LayerCache> layers, int64_t blocks, int64_t block_size)
      : layers_(std::move(layers)), blocks_(blocks), block_size_(block_size) {}

  int64_t blocks() const { return blocks_; }
  int64_t block_size() const { return block_size_; }
  LayerCache& layer(int64_t index) { return layers_[static_cast<size_t>(index)]; }
  void place(const PagedPlace& place) {
    for (auto& layer : layers_) layer.place(place);
  }

 private:
  std::vector<LayerCache> layers_;
  int64_t blocks_, block_size_;
};

// A sequence of which some rows are in a paged cache.
struct PagedSequence {
  std::vector<int64_t> blocks = {};  // its memory in order: enough for the new rows
  int64_t length = 0;                // rows that are there
  int64_t last_token = -1;           // of the last row that is there; -1: none
  int64_t prompt_rows = 0;           // as ModelCache::set_prompt_rows()
};

// The new rows of a pass: any number of one sequence, or one for each of several.
struct PagedRows {
  torch::Tensor tokens;  // (B, T) int64, on the CPU
  std::vector<PagedSequence> sequences;

  // Throws unless the blocks are there and have room.
  PagedPlace place(const PagedCache& cache, const torch::Device& device) const;
  // (B, 1): the tokens in front; undefined: there are none.
  torch::Tensor before(const torch::Device& device) const;
};

}  // namespace tempera::nn
