#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace tempera::study {

// A graph whose nodes have from 1 to `most` neighbours, each number as often as the others. From a
// node the next one is any of its neighbours, all equally likely.
struct Graph {
  std::vector<int64_t> degrees;  // of every node
  torch::Tensor transition;      // (nodes, nodes): rows sum to 1
};

Graph make_graph(int64_t nodes, int64_t most, int64_t seed);

}  // namespace tempera::study
