#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/shard.h"

namespace tempera::data {

inline std::filesystem::path put(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
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
