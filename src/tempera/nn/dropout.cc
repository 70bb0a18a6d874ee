#include "tempera/nn/dropout.h"

#include "tempera/ops/torch.h"

namespace tempera::nn {

uint64_t mix_seed(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t dropout_seed(uint64_t pass_seed, int64_t layer, DropoutSite site) {
  constexpr uint64_t kSites = 8;  // at least as many as there are
  return mix_seed(pass_seed, static_cast<uint64_t>(layer) * kSites + static_cast<uint64_t>(site));
}

torch::Generator seeded_generator(uint64_t seed, const torch::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

torch::Tensor seeded_dropout(const torch::Tensor& x, double share, uint64_t seed) {
  if (share == 0) return x;
  torch::Tensor mask;
  {
    const torch::NoGradGuard no_grad;
    mask = torch::empty_like(x, at::MemoryFormat::Contiguous)
               .bernoulli_(1 - share, seeded_generator(seed, x.device()))
               .div_(1 - share);
  }
  return x * mask;
}

}  // namespace tempera::nn
