#pragma once

#include <span>
#include <string>
#include <vector>

#include "tempera/nn/config.h"

// rope_freqs.weight of GGUF files: a number a rotary frequency, by which it is divided. That is how
// the format writes the stretched context of Llama 3, and any other frequencies.
namespace tempera::families {

// No frequency is divided by as much.
inline constexpr double kLargestRopeFactor = 1e6;

// Of a model with the scaling llama3 or factors; base^(-2 i / size) is the frequency of number i,
// of size / 2.
std::vector<float> rope_factors(const nn::RopeConfig& rope, int64_t size);

// Whether that tensor says the scaling, and no key does.
inline bool is_a_rope_tensor(nn::RopeScaling scaling) {
  return scaling == nn::RopeScaling::kLlama3 || scaling == nn::RopeScaling::kFactors;
}

// Sets the scaling that gives these factors: Llama 3's where it can have made them. Throws, with
// `where` in front, where they are none.
void read_rope_factors(std::span<const float> factors, nn::RopeConfig& rope,
                       const std::string& where);

}  // namespace tempera::families
