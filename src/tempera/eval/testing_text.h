#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/text/tokenizer.h"

namespace tempera::eval {

inline std::string text_of(const std::vector<int32_t>& ids) {
  std::string text;
  text::ByteTokenizer().decode(ids, text);
  return text;
}

}  // namespace tempera::eval
