#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tempera/nn/block.h"
#include "tempera/nn/model.h"
#include "tempera/nn/paged_cache.h"
#include "tempera/nn/positions.h"

namespace tempera::nn {

// One side of a batch; what is undefined is absent.
struct Side {
  torch::Tensor tokens;  // (B, T) int64
  torch::Tensor types;   // (B, T) int64
  torch::Tensor documents, start, end;
  // As those of Batch; of a decoder alone.
  torch::Tensor positions = {}, attention_scale = {};
  int64_t position_end = 0;
  torch::Tensor known = {};
  int64_t known_layers = 0;
};

Side target_side(const Batch& batch);
// Throws where the batch has no source.
Side source_side(const Batch& batch);

enum class StackKind {
  kCausal,         // a decoder
  kBidirectional,  // an encoder
  kTarget          // the half of an encoder-decoder that writes: causal, and reads a source
};

// Tokens through embedding, blocks and the last norm: what every kind of model is made of.
class Stack {
 public:
  // Its parts are registered in `owner`, so that a model with one stack has no prefix in its names.
  // The token table belongs to the model: the halves of an encoder-decoder share it.
  Stack(torch::nn::Module& owner, const ModelConfig& config, StackKind kind,
        std::shared_ptr<Embedding> embedding);

  // Hidden states (B, T, width) with what another stack's attention needs to read them.
  Source forward(const Side& side, const PassOptions& options,
                 const std::shared_ptr<const Source>& source = {});

  // Empty caches for `batch` sequences of `capacity` rows.
  ModelCache make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start,
                        torch::ScalarType type) const;
  // The same for sequences that read the source, whose keys and values are in it then.
  ModelCache make_cache(const Source& source, int64_t capacity, torch::ScalarType type) const;
  // Hidden states (B, rows, width) of the tokens (B, rows) behind those in the cache.
  torch::Tensor extend(const torch::Tensor& tokens, ModelCache& cache, torch::ScalarType type);

  // The same in blocks, for sequences that come and go.
  PagedCache make_paged_cache(int64_t blocks, int64_t block_size, torch::ScalarType type) const;
  torch::Tensor extend(const PagedRows& rows, PagedCache& cache, torch::ScalarType type);

  void set_context(const RopeConfig& rope, int64_t context);
  // Of every layer in order: the self-attention's, then the cross-attention's.
  std::vector<Method*> methods() const;

 private:
  Pass make_pass(const Side& side, const PassOptions& options);
  void spread(Pass& pass, const Side& side) const;
  // The pass is of this rank's rows.
  void cut(Pass& pass, const ContextShare& share, const RowCounts& counts) const;
  Pass make_pass(const torch::Tensor& tokens, const ModelCache& cache);
  Pass make_pass(const torch::Tensor& tokens, const std::vector<PagedSequence>& sequences);
  // before: (B, 1) the token in front of the first one, undefined: none; of shared rows that in
  // front of each, (B, rows).
  torch::Tensor embed(const Side& side, const torch::Tensor& before, const Pass& pass,
                      torch::ScalarType type) const;
  torch::Tensor shifted(const torch::Tensor& x, const torch::Tensor& before,
                        const Pass& pass) const;
  torch::Tensor through_blocks(const torch::Tensor& x, const Pass& pass, const PassOptions& options,
                               size_t first) const;
  // What the blocks get, and the first of them.
  std::pair<torch::Tensor, size_t> begin(const Side& side, const Pass& pass,
                                         const PassOptions& options) const;
  void check_length(int64_t length) const;
  // Of a pass over rows of sequences of `length`: positions (B, T), undefined where all sequences
  // have [first, first + rows).
  Angles angles(int64_t first, int64_t rows, int64_t length, const torch::Tensor& positions,
                const torch::Device& device);
  bool causal() const { return kind_ != StackKind::kBidirectional; }

  ModelConfig config_;
  StackKind kind_;
  std::shared_ptr<Embedding> embedding_;
  std::shared_ptr<Embedding> positions_;         // position = learned
  std::shared_ptr<Embedding> token_types_;       // token-types above 0
  std::shared_ptr<RelativeBias> relative_bias_;  // position = t5
  torch::Tensor shift_;
  std::shared_ptr<Norm> embedding_norm_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Norm> norm_;  // none after post-norm blocks, which end with one
  // Learned rotary positions only: the parameter, what it starts from, and its values in rotary_.
  torch::Tensor rope_shift_, rope_start_, table_shift_;
  RotaryTable rotary_;
};

}  // namespace tempera::nn
