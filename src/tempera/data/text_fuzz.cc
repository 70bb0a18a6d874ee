#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

// Any bytes are documents, or an Error, as plain text and as jsonl.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool jsonl : {false, true}) {
    try {
      tempera::data::for_each_document(bytes, jsonl, "fuzz", [](std::string_view document) {
        if (document.empty()) __builtin_trap();
      });
    } catch (const tempera::Error&) {
    }
  }
  return 0;
}
