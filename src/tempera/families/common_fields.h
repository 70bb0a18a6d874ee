#pragma once

#include "tempera/families/fields.h"
#include "tempera/nn/config.h"

// Groups of fields that several families write the same way.
namespace tempera::families {

// rope_theta and rope_scaling, or the rope_parameters of newer files.
void rope_fields(Fields& fields, nn::ModelConfig& config, double fallback_base = 10000);

// layer_types and sliding_window. `fallback`: the layers that have the window in files without a
// list of them. Files that say nothing of its size have that of transformers.
void window_fields(Fields& fields, nn::ModelConfig& config, const std::vector<bool>& fallback);

// The soft caps of a Gemma-2 whose file does not name them.
inline constexpr double kGemmaAttentionCap = 50, kGemmaLogitCap = 30;

// "all", or the layers one by one: what window_layers holds.
std::string layer_list(const std::vector<bool>& chosen);

// The sizes under the names that most configurations have: hidden_size and so on.
void named_sizes(Fields& fields, nn::ModelConfig& config);
// The same with key-value heads, as Llama and all that came after it have them. absent: how many
// there are where the field is missing; 0, as a null in the file: as many as heads.
void shape_fields(Fields& fields, nn::ModelConfig& config, int64_t absent = 0);

// The names of the activations that are no gates.
const std::vector<std::pair<std::string, nn::Activation>>& plain_activations();

// Attention and MLP in the names of Llama; the norms are the family's own.
struct Rule;
std::vector<Rule> llama_rules();

}  // namespace tempera::families
