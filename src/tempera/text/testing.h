#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tempera/text/tokenizer.h"

namespace tempera::text {

using Ids = std::vector<int32_t>;

inline Ids ids_of(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  Ids ids;
  tokenizer.encode(text, ids, options);
  return ids;
}

}  // namespace tempera::text
