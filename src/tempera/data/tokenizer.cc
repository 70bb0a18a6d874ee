#include "tempera/data/tokenizer.h"

#include <algorithm>
#include <cstddef>

#include "tempera/base/error.h"

namespace tempera::data {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  ids.resize(begin + text.size());
  std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
                 [](char c) { return static_cast<int32_t>(static_cast<unsigned char>(c)); });
}

void ByteTokenizer::decode(std::span<const int32_t> ids, std::string& text) const {
  for (const int32_t id : ids) {
    TEMPERA_CHECK(id >= 0 && id < kVocabulary, "token id ", id, "; the byte tokenizer has 0 to ",
                  kVocabulary - 1);
    if (id < 256) text.push_back(static_cast<char>(id));
  }
}

}  // namespace tempera::data
