#pragma once

#include <memory>
#include <vector>

#include "tempera/temperature/method.h"

namespace tempera {

// Several methods on one layer: their temperatures multiply, their states stand side by side.
class Product final : public Method {
 public:
  // The parts know their specs.
  Product(const LayerShape& shape, std::vector<std::shared_ptr<Method>> parts);

  RowScales forward(const LayerInputs& inputs) override;
  int64_t state_width() const override;
  bool cacheable() const override;
  bool reads_tokens() const override;
  void set_token_counts(const torch::Tensor& counts) override;
  std::optional<HeadScales> constant() const override;

 private:
  std::vector<std::shared_ptr<Method>> parts_;
};

}  // namespace tempera
