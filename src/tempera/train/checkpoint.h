#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tempera/nn/model.h"

// A checkpoint is a folder:
//
//   model.safetensors, optimizer.safetensors   tensors
//   config.json, ...                           small files of the model
//   state.json                                 where the run is, and a checksum of every file
//
// Of several ranks each writes what it has of the optimizer's state beside the others
// (optimizer-00001-of-00004.safetensors, ...), and state.json says what belongs where.
//
// It is written under another name, every file and the folder synced, and renamed: a folder with
// the name of a checkpoint is complete unless the disk or a person damaged it, and then a checksum
// tells. Nothing in it is code.
namespace tempera::train {

using Json = nlohmann::ordered_json;

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

struct Checkpoint {
  Json state;  // an object; "format", "files" and "checksum" are added when written
  std::map<std::string, std::string> files;
  nn::StateMap model;
  nn::StateMap optimizer;
  // Where ranks write the optimizer's state side by side instead: has all of them write into the
  // folder, and gives the descriptions of their files (write_shard).
  std::function<Json(const std::filesystem::path& folder)> write_shards = {};
};

// The folder appears complete or not at all. What stood under its name before is replaced. Throws
// Error, with nothing changed, where that fails, as on a full disk.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

// Its state after every file was checked against its size and checksum; throws Error that says what
// is wrong.
Json verify_checkpoint(const std::filesystem::path& folder);

// What the state says of a file: its size and checksum.
Json describe_file(const std::filesystem::path& path);

// Folders that a process left behind in the middle of its work, with names that no checkpoint has.
void remove_leftovers(const std::filesystem::path& parent);
// Removes a checkpoint so that no half of it can be seen.
void remove_checkpoint(const std::filesystem::path& folder);

}  // namespace tempera::train
