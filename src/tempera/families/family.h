#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/families/fields.h"
#include "tempera/nn/config.h"

// The families of existing models as data: how their configuration and their tensors are called in
// our terms. No torch in it.
namespace tempera::families {

// How the numbers of a file's tensor lie, seen from ours.
enum class Layout {
  kSame,
  kTransposed,   // (inputs, outputs)
  kByHead,       // the rows of q, k, v of one head, then of the next
  kMinusOne,     // gains that are added to 1
  kRotaryPairs,  // of q or k: columns that rotate together stand side by side
};

struct Part {
  std::string name;  // {} stands for the layer
  Layout layout = Layout::kSame;
};

// Our tensor is what the parts give, one below the other.
struct Rule {
  std::string ours;
  std::vector<Part> parts;
};

struct Family {
  std::string_view name;          // model_type
  std::string_view architecture;  // the class in transformers
  std::string_view gguf;          // general.architecture
  // What its models have in common.
  void (*shape)(nn::ModelConfig& config);
  // The fields of config.json.
  void (*fields)(Fields& fields, nn::ModelConfig& config);
  // The tensors of a Hugging Face folder. A rule whose tensor the model has not is not used.
  std::vector<Rule> (*rules)(const nn::ModelConfig& config);
  // A prefix of all names that some files leave out.
  std::string_view prefix = "";
  // How the names of tensors end that files may have beside those of the rules, and that take no
  // part in what the model computes.
  std::vector<std::string_view> unused = {};
};

const std::vector<Family>& all_families();
// Throws, with the nearest known name; `where` names the file.
const Family& find_family(std::string_view model_type, std::string_view where);

// The shape of a model by its config.json.
nn::ModelConfig read_config(const Family& family, const nlohmann::json& json,
                            const std::string& where);
nlohmann::json write_config(const Family& family, const nn::ModelConfig& config);

// Whether both describe the same model, training aside.
bool same_model(const nn::ModelConfig& a, const nn::ModelConfig& b);
// Whether writing and reading gives the same model.
bool can_express(const Family& family, const nn::ModelConfig& config);
// The family that can express the model, by writing and reading it; null: none.
const Family* family_of(const nn::ModelConfig& config);

// The name with the layer in the place of {}.
std::string at_layer(const std::string& pattern, int64_t layer);

}  // namespace tempera::families
