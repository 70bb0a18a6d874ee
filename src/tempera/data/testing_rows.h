#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "tempera/data/shard.h"
#include "tempera/data/text_dataset.h"

namespace tempera::data {

// Rows of documents whose tokens are 0, 1, 2 and so on.
inline std::shared_ptr<const Dataset> rows_of(const std::vector<int32_t>& documents, int64_t length,
                                              double held_out = 0) {
  ShardBuilder builder("t", 100'000);
  for (const int32_t size : documents) {
    std::vector<int32_t> ids(static_cast<size_t>(size));
    std::iota(ids.begin(), ids.end(), 0);
    builder.append(ids);
    builder.end_document();
  }
  std::vector<TokenShard> shards;
  shards.push_back(TokenShard::parse(builder.finish(), "memory"));
  return std::make_shared<TextDataset>(
      std::make_shared<Corpus>(std::move(shards), "memory"),
      TextOptions{.length = length, .seed = 0, .held_out = held_out});
}

}  // namespace tempera::data
