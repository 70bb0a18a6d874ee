#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/text/sentencepiece.h"
#include "tempera/text/stream.h"
#include "tempera/text/tokenizer_json.h"

namespace {

using namespace tempera::text;

// A tokenizer that was accepted has to encode and decode, or say why it cannot.
void use(const Tokenizer& tokenizer, std::string_view bytes) {
  const std::string_view start = bytes.substr(0, 200);
  for (const std::string_view text :
       {std::string_view("Hello, wörld 123\n\n  <s>字\xE2\x96\x81 \xFF"), start}) {
    for (const bool special : {false, true}) {
      std::vector<int32_t> ids;
      tokenizer.encode(text, ids, {.add_special = special, .parse_special = special});
      std::string decoded;
      tokenizer.decode(ids, decoded, SpecialText::kShow);
      StreamDecoder stream(tokenizer);
      for (const int32_t id : ids) stream.push(id);
      stream.finish();
      for (const int32_t id : ids)
        if (tokenizer.piece(id).empty()) __builtin_trap();
    }
  }
}

}  // namespace

// A tokenizer.json starts with a brace, which no tokenizer.model does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer =
        bytes.starts_with('{')
            ? make_tokenizer(parse_tokenizer_json(bytes, "fuzz"))
            : make_tokenizer(sentencepiece_parts(parse_sentencepiece(bytes, "fuzz")));
    use(*tokenizer, bytes);
  } catch (const tempera::Error&) {
  }
  return 0;
}
