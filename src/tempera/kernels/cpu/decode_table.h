#pragma once

#include <cstdint>
#include <tuple>

#include "tempera/kernels/cpu/plan.h"

namespace tempera::kernels::cpu {

template <class T, class C>
using Decode = void (*)(const DecodeParams<T, C>&, const AttentionOutputs<T>&, const DecodePlan&,
                        float* head_max, Parallel&);

// Decoding for one instruction set: the type of queries and outputs, and that of the cache.
using DecodeTable = std::tuple<Decode<float, float>, Decode<float, BFloat16>, Decode<float, int8_t>,
                               Decode<BFloat16, BFloat16>, Decode<BFloat16, int8_t>>;

}  // namespace tempera::kernels::cpu
