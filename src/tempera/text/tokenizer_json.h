#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tempera/text/pipeline.h"
#include "tempera/text/tokenizer.h"

namespace tempera::text {

// The parts that the text of a tokenizer.json states. Any part or field that is not known is
// refused by name; `where` names the file in messages. Padding and truncation are the caller's.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace tempera::text
