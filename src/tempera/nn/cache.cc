#include "tempera/nn/cache.h"

#include <numeric>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

torch::Tensor pick(const torch::Tensor& tensor, const std::vector<int64_t>& sequences) {
  if (!tensor.defined()) return {};
  return tensor.index_select(0, torch::tensor(sequences, torch::kInt64).to(tensor.device()));
}

}  // namespace

LayerCache::LayerCache(const Method& method, int64_t batch, int64_t capacity,
                       const torch::TensorOptions& options)
    : state_(batch, method.state_width()) {
  TEMPERA_CHECK(method.cacheable(), "the temperature method '", method.specs().front().name,
                "' reads rows that come later with these options: it cannot run with a cache");
  const auto& shape = method.shape();
  keys_.k = torch::zeros({batch, shape.kv_heads, capacity, shape.qk_size}, options);
  keys_.v = torch::zeros({batch, shape.kv_heads, capacity, shape.v_size}, options);
}

LayerCache LayerCache::paged(const Method& method, int64_t blocks, int64_t block_size,
                             const torch::TensorOptions& options) {
  LayerCache cache(method, blocks, block_size, options);
  const int64_t width = method.state_width();
  if (width > 0)
    cache.state_blocks_ = torch::zeros({blocks * block_size, width}, options.dtype(torch::kDouble));
  return cache;
}

int64_t LayerCache::row_bytes(const Method& method, torch::ScalarType type) {
  const auto& shape = method.shape();
  const auto size = static_cast<int64_t>(torch::elementSize(type));
  const int64_t factors = type == torch::kInt8 ? 2 * static_cast<int64_t>(sizeof(float)) : 0;
  return shape.kv_heads * ((shape.qk_size + shape.v_size) * size + factors);
}

void LayerCache::place(const PagedPlace& place) {
  keys_.block_table = place.table;
  keys_.slots = place.slots;
  keys_.length = place.length;
  before_ = place.before;
}

torch::Tensor LayerCache::last_state() const {
  if (!keys_.block_table.defined()) return state_.last();
  if (!state_blocks_.defined() || keys_.length == 0) return {};
  const auto rows = state_blocks_.index_select(0, before_.clamp_min(0));
  return torch::where((before_ >= 0).unsqueeze(1), rows, torch::zeros_like(rows));
}

void LayerCache::append_state(const RowScales& scales) {
  if (!keys_.block_table.defined())
    state_.append(scales.state);
  else if (state_blocks_.defined())
    state_blocks_.index_copy_(0, keys_.slots.flatten(),
                              scales.state.flatten(0, 1).to(torch::kDouble));
}

void LayerCache::truncate(int64_t length) {
  TEMPERA_CHECK(length >= 0 && length <= keys_.length, "a cache of ", keys_.length,
                " rows cannot be truncated to ", length);
  keys_.length = length;
  state_.truncate(length);
}

LayerCache LayerCache::select(const std::vector<int64_t>& sequences) const {
  LayerCache copy = *this;
  for (torch::Tensor* tensor : {&copy.keys_.k, &copy.keys_.v, &copy.keys_.a_k, &copy.keys_.a_v})
    *tensor = pick(*tensor, sequences);
  copy.state_ = state_.select(sequences);
  return copy;
}

void ModelCache::append_tokens(const torch::Tensor& tokens) {
  tokens_.narrow(1, length_, tokens.size(1)).copy_(tokens);
  length_ += tokens.size(1);
}

void ModelCache::set_source(std::vector<LayerCache> layers, SequenceMask mask) {
  source_layers_ = std::move(layers);
  source_mask_ = std::move(mask);
}

void ModelCache::truncate(int64_t length) {
  for (auto& layer : layers_) layer.truncate(length);
  for (auto& layer : source_layers_) layer.truncate_state(length);
  length_ = length;
}

ModelCache ModelCache::fork() const {
  std::vector<int64_t> all(static_cast<size_t>(batch()));
  std::iota(all.begin(), all.end(), 0);
  return select(all);
}

ModelCache ModelCache::select(const std::vector<int64_t>& sequences) const {
  ModelCache copy = *this;
  for (auto& layer : copy.layers_) layer = layer.select(sequences);
  for (auto& layer : copy.source_layers_) layer = layer.select(sequences);
  copy.source_mask_.start = pick(source_mask_.start, sequences);
  copy.source_mask_.end = pick(source_mask_.end, sequences);
  copy.tokens_ = pick(tokens_, sequences);
  copy.start_ = pick(start_, sequences);
  return copy;
}

}  // namespace tempera::nn
