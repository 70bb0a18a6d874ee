#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tempera/base/parallel.h"
#include "tempera/text/tokenizer.h"

namespace tempera::data {

struct ConvertOptions {
  int64_t shard_tokens = int64_t{1} << 26;  // a shard is closed as soon as it has as many
  // Names and bytes of files that are written beside the shards, such as the tokenizer.
  std::vector<std::pair<std::string, std::string>> files = {};
};

struct ConvertSummary {
  int64_t text_bytes = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<std::filesystem::path> shards;
};

// Turns text and jsonl files into token shards in a new folder, which appears complete or not at
// all. All inputs are looked at before the first is read. report(bytes of text done) is called as
// the work goes on, and may throw.
ConvertSummary convert_to_shards(std::span<const std::filesystem::path> inputs,
                                 const text::Tokenizer& tokenizer,
                                 const std::filesystem::path& folder, const ConvertOptions& options,
                                 FunctionRef<void(int64_t bytes)> report);

}  // namespace tempera::data
