#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/checksum.h"
#include "tempera/data/shard.h"

// Any bytes are a shard that can be read to its end, or an Error. The checksums are made right
// first, for otherwise nothing would get past them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kHeader = 120;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  if (size >= kHeader) {
    const std::span<const std::byte> all(bytes);
    const uint64_t body = tempera::data::checksum(all.subspan(kHeader));
    std::memcpy(bytes.data() + kHeader - 16, &body, 8);
    const uint64_t header = tempera::data::checksum(all.first(kHeader - 8));
    std::memcpy(bytes.data() + kHeader - 8, &header, 8);
  }
  try {
    const auto shard = tempera::data::TokenShard::parse(std::move(bytes), "fuzz");
    std::vector<int64_t> tokens(static_cast<size_t>(shard.tokens()));
    shard.read(0, tokens);
    for (const int64_t token : tokens)
      if (token < 0 || token >= shard.vocabulary()) std::abort();
    for (int64_t i = 0; i < shard.documents(); ++i)
      if (shard.document_of(shard.document_begin(i)) != i) std::abort();
  } catch (const tempera::Error&) {
  }
  return 0;
}
