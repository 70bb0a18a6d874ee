#include "tempera/train/telemetry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tempera/ops/torch.h"
#include "tempera/train/optimizer.h"

namespace tempera::train {
namespace {

constexpr std::array<const char*, 7> kGroups = {"embedding",   "attention", "mlp",    "vector",
                                                "temperature", "rotary",    "adapter"};

size_t group_of(const nn::NamedParameter& parameter) {
  switch (parameter.kind) {
    case nn::ParameterKind::kEmbedding:
      return 0;
    case nn::ParameterKind::kMatrix:
      return parameter.name.find("attention.") != std::string::npos ? 1 : 2;
    case nn::ParameterKind::kVector:
      return 3;
    case nn::ParameterKind::kTemperature:
      return 4;
    case nn::ParameterKind::kFrequency:
      return 5;
    case nn::ParameterKind::kAdapter:
      break;
  }
  return 6;
}

// What a reader of the log can use, and no more: a line has hundreds of them.
double five_digits(double value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.5g", value);
  return std::strtod(text.data(), nullptr);
}

std::string layer_name(const nn::ModelConfig& config, int64_t attention) {
  if (config.kind != nn::ModelKind::kEncoderDecoder) return std::to_string(attention);
  const int64_t encoders = config.layer_count(AttentionKind::kEncoder);
  if (attention < encoders) return "encoder " + std::to_string(attention);
  const int64_t behind = attention - encoders;
  return (behind % 2 == 0 ? "decoder " : "cross ") + std::to_string(behind / 2);
}

// The quantiles of numbers of heads that lie in one list, which came from the device at once.
class HeadNumbers {
 public:
  void add(size_t layer, const char* name, const torch::Tensor& heads) {
    if (!heads.defined()) return;
    places_.push_back({layer, name, length_, heads.numel()});
    parts_.push_back(heads.detach().flatten().to(torch::kFloat64));
    length_ += heads.numel();
  }

  void write(Json& layers) const {
    if (parts_.empty()) return;
    const torch::Tensor all = torch::cat(parts_).cpu();
    const double* numbers = all.const_data_ptr<double>();
    for (const Place& place : places_) {
      std::vector<double> heads(numbers + place.begin, numbers + place.begin + place.count);
      layers[place.layer][place.name] = quantiles(std::move(heads));
    }
  }

 private:
  struct Place {
    size_t layer;
    const char* name;
    int64_t begin, count;
  };

  static Json quantiles(std::vector<double> heads) {
    std::ranges::sort(heads);
    Json five = Json::array();
    for (int quarter = 0; quarter <= 4; ++quarter) {
      const double at = static_cast<double>(heads.size() - 1) * quarter / 4;
      const auto below = static_cast<size_t>(at);
      const size_t above = std::min(below + 1, heads.size() - 1);
      const double share = at - static_cast<double>(below);
      // Not a mean of both: of infinite numbers that is none.
      const double between =
          share == 0 ? heads[below] : heads[below] + share * (heads[above] - heads[below]);
      five.push_back(five_digits(between));
    }
    return five;
  }

  std::vector<Place> places_;
  std::vector<torch::Tensor> parts_;
  int64_t length_ = 0;
};

}  // namespace

GroupNumbers squared_norms(const std::vector<nn::NamedParameter>& parameters) {
  GroupNumbers squares(kGroups.size());
  const auto norms = gradient_norms(parameters);
  for (size_t i = 0; i < parameters.size(); ++i)
    squares[group_of(parameters[i])] += norms[i] * norms[i];
  return squares;
}

Json norms_by_group(const GroupNumbers& squares,
                    const std::vector<nn::NamedParameter>& parameters) {
  std::array<bool, kGroups.size()> there{};
  for (const auto& parameter : parameters) there[group_of(parameter)] = true;
  Json norms = Json::object();
  for (size_t group = 0; group < kGroups.size(); ++group)
    if (there[group]) norms[kGroups[group]] = five_digits(std::sqrt(squares[group]));
  return norms;
}

Json attention_numbers(nn::Model& model, const nn::Batch& batch) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto found = model.inspect(batch, {}, {});
  Json layers = Json::array();
  HeadNumbers numbers;
  int64_t heads = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const nn::LayerInspection& layer = found[i];
    heads = std::max(heads, layer.mean_entropy.numel());
    layers.push_back({{"layer", layer_name(model.config(), static_cast<int64_t>(i))}});
    numbers.add(i, "entropy", layer.mean_entropy);
    numbers.add(i, "largest_logit", layer.largest);
    numbers.add(i, "temperature", layer.a_q.defined() ? layer.a_q.reciprocal() : layer.a_q);
    numbers.add(i, "key_scale", layer.a_k);
    numbers.add(i, "value_scale", layer.a_v);
  }
  numbers.write(layers);
  return {{"heads", heads}, {"layers", std::move(layers)}};
}

}  // namespace tempera::train
