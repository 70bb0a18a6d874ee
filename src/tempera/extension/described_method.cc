#include "tempera/extension/described_method.h"

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/extension/describe.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::extension {
namespace {

std::vector<torch::Tensor> parts_of(const RowScale& scale, const torch::Tensor& projection,
                                    int64_t batch, int64_t rows) {
  const auto& recipe = scale.recipe;
  TEMPERA_CHECK(!recipe.w.defined() || recipe.source.is_same(projection),
                "a recipe reads something else than its own projection");
  std::vector<torch::Tensor> parts(kParts);
  if (scale.rows.defined()) parts[kRows] = scale.rows.expand({batch, projection.size(1), rows});
  parts[kW] = recipe.w;
  parts[kG] = ops::slope_of(recipe);
  parts[kC] = recipe.c;
  parts[kS] = recipe.s;
  return parts;
}

}  // namespace

DescribedMethod::DescribedMethod(const std::string& description) {
  const auto json = nlohmann::json::parse(description);
  const auto temperature = temperature_of(json.at("temperature"), Origin::kScratch);
  method_ = make_method(method_specs(temperature.method, temperature.options, Origin::kScratch),
                        shape_of(json.at("shape")));
  TEMPERA_CHECK(method_->shape().kind != AttentionKind::kCross || !method_->reads_tokens(), "'",
                temperature.method, "' with these options reads tokens, and a cross-attention in ",
                "Python is not told those of the source; choose other options (ssa: f=shared)");
  const auto take = [&](const auto& items) {
    for (const auto& item : items) {
      names_.push_back(item.key());
      numbers_.push_back(item.value());
    }
  };
  take(method_->named_parameters());
  parameters_ = numbers_.size();
  take(method_->named_buffers());
}

std::vector<size_t> DescribedMethod::results() {
  const torch::NoGradGuard no_grad;
  // A table that its owner has not filled yet would be refused.
  const bool reads = method_->reads_tokens();
  if (reads) method_->set_token_counts(torch::ones({method_->shape().vocabulary}, torch::kInt64));
  const auto one = torch::zeros({1, 1}, torch::kInt64);
  const auto x = torch::zeros({1, 1, method_->shape().d_model});
  RowInputs inputs{x, one + 1, one, reads ? one : torch::Tensor(), {}};
  if (method_->shape().kind == AttentionKind::kCross) inputs.keys = {x, one + 1, one};
  const auto all = row_scales(*method_, inputs);
  std::vector<size_t> present;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].defined()) present.push_back(i);
  return present;
}

void DescribedMethod::set_numbers(const std::vector<torch::Tensor>& numbers) {
  TEMPERA_CHECK(numbers.size() == numbers_.size(), "the method has ", numbers_.size(),
                " tensors, and ", numbers.size(), " were given");
  for (size_t i = 0; i < numbers.size(); ++i) {
    TEMPERA_CHECK(numbers[i].sizes() == numbers_[i].sizes(), "the method's '", names_[i],
                  "' has the shape ", numbers_[i].sizes(), ", and ", numbers[i].sizes(),
                  " was given: are these the numbers of another model?");
    numbers_[i].set_data(numbers[i].detach());
  }
}

RowInfo RowInputs::key_rows() const {
  if (keys.empty()) return {x, tokens, n, position};
  TEMPERA_CHECK(keys.size() == 3, keys.size(), " tensors given for the rows of the keys, and ",
                "3 expected: x, n and position");
  return {keys[0], {}, keys[1], keys[2]};
}

std::vector<torch::Tensor> row_scales(Method& method, const RowInputs& inputs) {
  const LayerShape& shape = method.shape();
  const int64_t batch = inputs.x.size(0);
  TEMPERA_CHECK(inputs.keys.empty() == (shape.kind != AttentionKind::kCross),
                "a cross-attention has rows of its own for its keys, and no other attention has");
  // What a recipe reads is not here: attention computes it from its own operand. The heads are.
  const auto projection = [&](int64_t heads, int64_t size) {
    return inputs.x.new_empty({batch, heads, 0, size});
  };
  const LayerInputs layer{{inputs.x, inputs.tokens, inputs.n, inputs.position},
                          inputs.key_rows(),
                          projection(shape.q_heads, shape.qk_size),
                          projection(shape.kv_heads, shape.qk_size),
                          projection(shape.kv_heads, shape.v_size),
                          inputs.past};
  const RowScales scales = method.forward(layer);
  std::vector<torch::Tensor> results;
  const auto take = [&](const RowScale& scale, const torch::Tensor& operand, const RowInfo& side) {
    for (auto& part : parts_of(scale, operand, batch, side.x.size(1)))
      results.push_back(std::move(part));
  };
  take(scales.q, layer.q, layer.queries);
  take(scales.k, layer.k, layer.keys);
  take(scales.v, layer.v, layer.keys);
  results.push_back(scales.state);
  return results;
}

}  // namespace tempera::extension
