#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/train/checkpoint.h"

namespace tempera::train {

// What one of several ranks has of a tensor: a stretch of its elements in a row.
struct Stretch {
  torch::Tensor values;
  int64_t begin = 0;
  std::vector<int64_t> shape;  // of the whole tensor
};
using StretchMap = std::map<std::string, Stretch>;

// Each tensor as the only stretch of itself.
StretchMap whole(const nn::StateMap& tensors);

// Writes one rank's file of a checkpoint into its folder. Gives what the checkpoint's state says of
// it: its name, size and checksum, and where each stretch belongs.
Json write_shard(const std::filesystem::path& folder, const std::string& name,
                 const StretchMap& stretches);

// Fills the values in from a checkpoint of any number of ranks. Throws Error, naming the tensor,
// where it has others or does not have them all.
void read_stretches(const std::filesystem::path& checkpoint, const Json& state,
                    const StretchMap& wanted);

}  // namespace tempera::train
