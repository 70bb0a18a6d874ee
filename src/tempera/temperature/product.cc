#include "tempera/temperature/product.h"

#include <algorithm>

#include "tempera/ops/torch.h"

namespace tempera {

Product::Product(const LayerShape& shape, std::vector<std::shared_ptr<Method>> parts)
    : Method(shape), parts_(std::move(parts)) {
  for (const auto& part : parts_) register_module(part->specs().front().name, part);
}

RowScales Product::forward(const LayerInputs& inputs) {
  const auto type = scale_type(inputs.q.scalar_type());
  RowScales result;
  std::vector<torch::Tensor> states;
  int64_t column = 0;
  for (const auto& part : parts_) {
    LayerInputs own = inputs;
    const int64_t width = part->state_width();
    own.past =
        inputs.past.defined() && width > 0 ? inputs.past.narrow(1, column, width) : torch::Tensor();
    column += width;
    const RowScales scales = part->forward(own);
    result.q = multiply(result.q, scales.q, inputs.queries.n, type);
    result.k = multiply(result.k, scales.k, inputs.keys.n, type);
    result.v = multiply(result.v, scales.v, inputs.keys.n, type);
    if (width > 0) states.push_back(scales.state);
  }
  if (!states.empty()) result.state = torch::cat(states, 2);
  return result;
}

int64_t Product::state_width() const {
  int64_t width = 0;
  for (const auto& part : parts_) width += part->state_width();
  return width;
}

bool Product::cacheable() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->cacheable(); });
}

bool Product::reads_tokens() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->reads_tokens(); });
}

void Product::set_token_counts(const torch::Tensor& counts) {
  for (const auto& part : parts_) part->set_token_counts(counts);
}

std::optional<HeadScales> Product::constant() const {
  HeadScales product;
  const auto take = [](torch::Tensor& into, const torch::Tensor& factor) {
    if (factor.defined()) into = into.defined() ? into * factor : factor;
  };
  for (const auto& part : parts_) {
    const auto heads = part->constant();
    if (!heads) return std::nullopt;
    take(product.q, heads->q);
    take(product.k, heads->k);
    take(product.v, heads->v);
  }
  return product;
}

}  // namespace tempera
