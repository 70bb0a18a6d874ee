#pragma once

#include "tempera/families/family.h"
#include "tempera/io/gguf.h"

// GGUF files in our terms. Their keys and tensor names are the same for all families.
namespace tempera::families {

// The family of general.architecture. Throws, naming the known ones.
const Family& gguf_family(const io::Gguf& file, const std::string& where);

// The shape of the model; biases and an output matrix are told by the tensors that are there.
nn::ModelConfig gguf_config(const io::Gguf& file, const std::string& where);

// The keys under the architecture's name, and general.architecture. Throws, with the reason, where
// the format has no words for the model.
io::GgufMetadata gguf_metadata(const Family& family, const nn::ModelConfig& config);

// The tensor that holds rope_factors (rope_factors.h); belongs to no part of the model.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";

// The tensors.
std::vector<Rule> gguf_rules(const Family& family);

}  // namespace tempera::families
