#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tempera/families/family.h"
#include "tempera/models/source.h"
#include "tempera/nn/model.h"

namespace tempera::models {

// What some files say otherwise than the rules.
struct NameOptions {
  std::string_view prefix = "";               // may be missing in front of all names
  std::vector<std::string_view> unused = {};  // ends of names that may be left over
};

// Throws, naming `where`, if the tensors have far fewer numbers than a model of this shape, which
// the word of a header is not enough to take memory for. Tensors of a somewhat wrong shape are
// named by load_weights().
void check_numbers(const nn::ModelConfig& config, const TensorSource& source,
                   const std::string& where);

// Copies a file's tensors into the model by a family's rules; temperatures keep their start.
// Throws, naming them, where tensors are missing, have another shape, or are left over.
void load_weights(nn::Model& model, const std::vector<families::Rule>& rules,
                  const TensorSource& source, const NameOptions& options = {});

using Modules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// Puts the tensor in the place of a Linear's or an Embedding's weight. False: `name` is none.
bool set_weight(const Modules& modules, const std::string& name, const torch::Tensor& weight);

// What the configuration leaves to the tensors that are there: an output matrix beside a token
// table said to be the same, which it is only with the same numbers, and whether there is a pooler
// that nothing reads.
void settle(nn::ModelConfig& config, const std::vector<families::Rule>& rules,
            const TensorSource& source, const NameOptions& options);

// What a file calls the first tensor that ours is made of; unset: the rules have no place for it.
std::optional<std::string> family_name(const std::vector<families::Rule>& rules,
                                       const std::string& ours);

// The reverse: the model's weights under the file's names; temperatures are left out.
nn::StateMap file_tensors(const nn::ModelConfig& config, const nn::StateMap& state,
                          const std::vector<families::Rule>& rules);

}  // namespace tempera::models
