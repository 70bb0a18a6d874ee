#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/data/shard.h"

namespace tempera::data {

inline std::filesystem::path put(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::vector<std::byte> shard_bytes(const std::vector<std::vector<int32_t>>& documents,
                                          const std::string& tokenizer = "bytes",
                                          int64_t vocabulary = 259) {
  ShardBuilder builder(tokenizer, vocabulary);
  for (const auto& document : documents) {
    builder.append(document);
    builder.end_document();
  }
  return builder.finish();
}

}  // namespace tempera::data
