#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tempera/base/parallel.h"

namespace tempera::data {

// The text of a tokenizer.json with a byte-level BPE of `vocabulary` pieces, learnt from the
// documents of the files; <|endoftext|> and <pad> are its first two. report(bytes of text counted,
// pieces learnt) is called as the work goes on, and may throw.
std::string train_tokenizer(std::span<const std::filesystem::path> inputs, int64_t vocabulary,
                            FunctionRef<void(int64_t bytes, int64_t pieces)> report);

}  // namespace tempera::data
