#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/text/tokenizer.h"

namespace tempera::text {

// Text from ids that come one by one. All that it gives, put together, is the text of all ids;
// every part is valid UTF-8: a character waits until its last byte is there, and bytes that are
// none become U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, SpecialText specials = SpecialText::kSkip);
  // The text that is complete with this id; often empty. One beyond the vocabulary has none.
  std::string push(int32_t id);
  // What still waits, at the end.
  std::string finish();

 private:
  std::string take(bool last);

  const Tokenizer& tokenizer_;
  SpecialText specials_;
  std::vector<int32_t> ids_;  // what the next id is read with
  std::string waiting_;       // bytes that are not a whole character yet
};

}  // namespace tempera::text
