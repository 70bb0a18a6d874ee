#pragma once

#include <string>
#include <vector>

#include "tempera/bench/attention_pair.h"
#include "tempera/bench/benchmark.h"

namespace tempera::bench {

// Attention on a GPU, every contender in a graph, so that the host's share does not count: cuDNN's
// attention from ready q, k and v; ours with each method from ready q, k and v; and ours from the
// joint projection (split, rotation, temperatures, attention).
Report gpu_attention(const std::vector<AttentionShape>& shapes,
                     const std::vector<std::string>& methods, double seconds);

}  // namespace tempera::bench
