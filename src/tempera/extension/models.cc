#include <torch/library.h>

#include <map>

#include "tempera/base/error.h"
#include "tempera/base/version.h"
#include "tempera/extension/describe.h"
#include "tempera/extension/described_method.h"
#include "tempera/models/described.h"
#include "tempera/models/fold.h"
#include "tempera/models/weights.h"
#include "tempera/ops/torch.h"

// Operators without a tensor to be computed: what Python asks of the program's libraries. Text is
// JSON.
namespace tempera::extension {
namespace {

using nlohmann::json;
using Tensors = std::vector<torch::Tensor>;
using Names = std::vector<std::string>;

class NamedTensors final : public models::TensorSource {
 public:
  NamedTensors(const Names& names, const Tensors& tensors) : names_(names) {
    TEMPERA_CHECK(names.size() == tensors.size(), names.size(), " names and ", tensors.size(),
                  " tensors given");
    for (size_t i = 0; i < names.size(); ++i) tensors_[names[i]] = tensors[i];
  }

  std::vector<std::string> names() const override { return names_; }
  bool has(const std::string& name) const override { return tensors_.contains(name); }
  std::vector<int64_t> shape(const std::string& name) const override {
    return tensors_.at(name).sizes().vec();
  }
  torch::Tensor read(const std::string& name, torch::ScalarType) const override {
    return tensors_.at(name).detach().cpu();
  }
  void release(const std::string&) const override {}

 private:
  Names names_;
  std::map<std::string, torch::Tensor> tensors_;
};

std::tuple<Names, Tensors> listed(const nn::StateMap& state) {
  Names names;
  Tensors tensors;
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    tensors.push_back(tensor.detach().clone());
  }
  return {names, tensors};
}

std::string methods() { return registry_json().dump(); }

// With every option said, for a model whose weights were trained without it.
std::string temperature(const std::string& given) {
  return temperature_json(temperature_of(json::parse(given), Origin::kLoaded)).dump();
}

std::string attentions(const std::string& config, const std::string& temperature) {
  return attentions_json(json::parse(config),
                         temperature_of(json::parse(temperature), Origin::kScratch))
      .dump();
}

// What one layer's method is: names of its numbers, and what it needs and gives.
std::tuple<std::string, Tensors> method(const std::string& description) {
  DescribedMethod described(description);
  Tensors starts;
  for (const auto& number : described.numbers()) starts.push_back(number.detach().clone());
  const Method& found = described.method();
  const json result{
      {"names", described.names()},           {"parameters", described.parameter_count()},
      {"state_width", found.state_width()},   {"cacheable", found.cacheable()},
      {"reads_tokens", found.reads_tokens()}, {"rates", found.rates()},
      {"results", described.results()}};
  return {result.dump(), starts};
}

// The numbers of a method that is told how often each token occurs.
Tensors count_tokens(const std::string& description, const torch::Tensor& counts) {
  DescribedMethod described(description);
  described.method().set_token_counts(counts);
  Tensors numbers;
  for (const auto& number : described.numbers()) numbers.push_back(number.detach().clone());
  return numbers;
}

// A folder of our own as a model of a family.
std::tuple<std::string, Names, Tensors> open_folder(const std::string& path) {
  const auto state = models::describe_model(models::load_model(path));
  nn::StateMap all = state.weights;
  all.insert(state.numbers.begin(), state.numbers.end());
  auto [names, tensors] = listed(all);
  return {models::write_description(state.description).dump(), names, tensors};
}

std::tuple<Names, Tensors> fold(const std::string& description, const Names& names,
                                const Tensors& tensors) {
  const auto described = models::read_description(json::parse(description), "the model");
  const NamedTensors source(names, tensors);
  const auto model = models::load_described(described, source, "the model");
  const auto folded = models::fold(*model);
  const auto& family =
      families::find_family(described.base["model_type"].get<std::string>(), "the model");
  return listed(models::file_tensors(folded.config, folded.state, family.rules(folded.config)));
}

std::string version_text() { return version(); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(tempera, library) {
  library.def("version() -> str", &version_text);
  library.def("methods() -> str", &methods);
  library.def("temperature(str given) -> str", &temperature);
  library.def("attentions(str config, str temperature) -> str", &attentions);
  library.def("method(str description) -> (str, Tensor[])", &method);
  library.def("count_tokens(str description, Tensor counts) -> Tensor[]", &count_tokens);
  library.def("open_folder(str path) -> (str, str[], Tensor[])", &open_folder);
  library.def("fold(str description, str[] names, Tensor[] tensors) -> (str[], Tensor[])", &fold);
}

}  // namespace tempera::extension
