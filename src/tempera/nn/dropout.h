#pragma once

#include <torch/types.h>

#include <cstdint>

// Random numbers as functions of explicit seeds, so that a pass done again gives the same bits.
namespace tempera::nn {

// Well-mixed bits of both.
uint64_t mix_seed(uint64_t seed, uint64_t counter);
// A generator on the device that starts from the seed.
torch::Generator seeded_generator(uint64_t seed, const torch::Device& device);

// Where dropout acts in a pass; each site of each layer has random numbers of its own.
enum class DropoutSite {
  kEmbedding,
  kAttention,
  kAttentionOutput,
  kMlpOutput,
  kCrossAttention,
  kCrossOutput
};

uint64_t dropout_seed(uint64_t pass_seed, int64_t layer, DropoutSite site);

// Sets a share of the numbers to 0 and scales the rest. The mask is a function of the seed and the
// shape.
torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed);

}  // namespace tempera::nn
