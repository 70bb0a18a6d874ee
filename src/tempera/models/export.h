#pragma once

#include <string>

#include "tempera/base/output.h"
#include "tempera/io/ggml_type.h"
#include "tempera/models/load.h"

namespace tempera::models {

struct ExportOptions {
  bool fold = false;
  std::string as = {};  // the model_type to write; empty: the model's own
  torch::ScalarType dtype = torch::kFloat32;
  uint64_t shard_bytes = uint64_t{5} << 30;
};

// Both finish `out`, and throw Interrupted where a signal arrives on the way.

// Writes a folder: in the form of transformers where the model has no temperature, or with fold
// none any more; else in our own, which no other program runs without the temperature. The
// tokenizer's files come along. Returns the model_type written.
std::string export_folder(const LoadedModel& loaded, NewOutput& out, const ExportOptions& options);

// Writes a .gguf file. The tokenizer comes along; returns whether there is one. Throws, with the
// reason, where the format has no words for the model or for its tokenizer.
bool export_gguf(const LoadedModel& loaded, NewOutput& out, bool fold, io::GgmlType type);

}  // namespace tempera::models
