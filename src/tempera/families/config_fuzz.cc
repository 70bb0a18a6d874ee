// A hostile config.json: read as every family reads it, and written back where it was accepted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tempera/base/error.h"
#include "tempera/families/family.h"
#include "tempera/io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tempera;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nlohmann::json json;
  try {
    json = io::parse_json(text, "input");
  } catch (const Error&) {
    return 0;
  }
  for (const auto& family : families::all_families()) {
    try {
      families::write_config(family, families::read_config(family, json, "input"));
    } catch (const Error&) {
      // refused, which is an answer
    }
  }
  return 0;
}
