#pragma once

#include <filesystem>
#include <string>

#include "tempera/io/safetensors.h"
#include "tempera/nn/model.h"

namespace tempera::models {

// Tensors to and from .safetensors files, with their bits unchanged.
void write_tensors(const std::filesystem::path& path, const nn::StateMap& tensors);
nn::StateMap read_tensors(const std::filesystem::path& path);
// Points into the tensor, which lies on the CPU in one piece.
io::TensorView view_of(const std::string& name, const torch::Tensor& tensor);
// What it is in torch. Throws where torch has no such type.
torch::ScalarType torch_type(const io::TensorView& view);

}  // namespace tempera::models
