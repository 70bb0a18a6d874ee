#include "tempera/lens/factors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::lens {
namespace {

constexpr const char* kHead = "head";  // the method that has a temperature for each head

bool has_heads(const std::string& method) {
  return std::ranges::count(split_methods(method), kHead) > 0;
}

// With a temperature for each head beside what there is.
nn::TemperatureConfig with_heads(const nn::TemperatureConfig& temperature) {
  nn::TemperatureConfig more = temperature;
  const std::string each = "head";
  if (has_heads(temperature.method)) {
    for (const char* name : {"by", "head.by"})
      if (more.options.contains(name)) more.options[name] = each;
    return more;
  }
  more.method = temperature.method == "softmax" ? kHead : temperature.method + "," + kHead;
  return more;
}

// "layers.0.attention.temperature.focal.t" is "layers.0.attention.temperature.t" where the method
// stands alone.
std::string name_alone(const std::string& name) {
  const std::string mark = ".temperature.";
  const size_t begin = name.find(mark) + mark.size();
  const size_t end = name.find('.', begin);
  return end == std::string::npos ? name : name.substr(0, begin) + name.substr(end + 1);
}

// The temperatures of a model in the names of one that has more.
nn::StateMap renamed(const nn::StateMap& from, const nn::StateMap& to) {
  nn::StateMap made;
  for (const auto& [name, tensor] : to) {
    auto old = from.find(name);
    if (old == from.end() && nn::is_temperature(name)) old = from.find(name_alone(name));
    const bool known = old != from.end() && (old->second.sizes() == tensor.sizes() ||
                                             old->second.numel() == 1);  // shared by a layer
    made[name] = known ? old->second.expand_as(tensor).clone() : torch::zeros_like(tensor);
  }
  return made;
}

torch::Tensor head_numbers(const Method& method) {
  for (const auto& parameter : method.named_parameters())
    if (parameter.key() == "theta" || parameter.key() == "head.theta") return parameter.value();
  return {};
}

}  // namespace

std::shared_ptr<nn::Model> with_factors(nn::Model& model, const Factors& factors) {
  const torch::NoGradGuard no_grad;
  nn::ModelConfig config = model.config();
  config.temperature = with_heads(config.temperature);
  if (config.cross_temperature.method != nn::kSameMethod)
    config.cross_temperature = with_heads(config.cross_temperature);
  auto made = nn::make_empty_model(config);
  made->eval();
  made->load_state(renamed(model.state(), made->state()));
  const auto methods = made->methods();
  TEMPERA_CHECK(methods.size() == factors.size(), factors.size(),
                " layers of factors given; the model has ", methods.size(), " attentions");
  for (size_t i = 0; i < methods.size(); ++i) {
    const bool changes = std::ranges::any_of(factors[i], [](double factor) { return factor != 1; });
    torch::Tensor theta = head_numbers(*methods[i]);
    TEMPERA_CHECK(!changes || theta.defined(), "attention ", i,
                  " has no temperature in this model, which has some in other layers (",
                  config.temperature.layers, "); change those alone");
    if (!theta.defined()) continue;
    theta.sub_(torch::tensor(factors[i], torch::kFloat64).log().to(theta.scalar_type()));
  }
  return made;
}

}  // namespace tempera::lens
