#pragma once

#include <span>
#include <string>
#include <vector>

#include "tempera/nn/config.h"

// rope_freqs.weight of GGUF files: a number a rotary frequency, by which it is divided. That is how
// the format writes the stretched context of Llama 3.
namespace tempera::families {

// Of a model with that scaling; base^(-2 i / size) is the frequency of number i, of size / 2.
std::vector<float> rope_factors(const nn::RopeConfig& rope, int64_t size);

// Sets the scaling that gives these factors. Throws, with `where` in front, where Llama 3 cannot
// have made them.
void read_rope_factors(std::span<const float> factors, nn::RopeConfig& rope,
                       const std::string& where);

}  // namespace tempera::families
