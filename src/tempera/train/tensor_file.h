#pragma once

#include <filesystem>
#include <string>

#include "tempera/nn/model.h"

namespace tempera::train {

// Tensors to and from .safetensors files, with their bits unchanged.
void write_tensors(const std::filesystem::path& path, const nn::StateMap& tensors);
nn::StateMap read_tensors(const std::filesystem::path& path);

}  // namespace tempera::train
