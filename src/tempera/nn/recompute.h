#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace tempera::nn {

// Runs `pass` on the inputs without keeping what its backward needs, and runs it again there: less
// memory for about a third more time. The pass must give the same result both times; its random
// numbers come from explicit seeds. Its gradients go to `inputs` and to `parameters`, which it
// uses.
torch::Tensor recomputed(
    const std::function<torch::Tensor(const std::vector<torch::Tensor>&)>& pass,
    const std::vector<torch::Tensor>& inputs, const std::vector<torch::Tensor>& parameters);

}  // namespace tempera::nn
