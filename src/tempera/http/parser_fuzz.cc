#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tempera/http/parser.h"

namespace {

using namespace tempera::http;  // NOLINT(google-build-using-namespace): a program of one function

const Limits kLimits = {.head_bytes = 512, .headers = 8, .body_bytes = 256};

// All that is read of the bytes when they come in pieces of this size.
std::string read(std::string_view bytes, size_t piece) {
  std::string seen;
  RequestParser parser(kLimits);
  try {
    do {
      parser.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (parser.done()) {
        const Request request = parser.take();
        if (request.body.size() > kLimits.body_bytes || request.headers.size() > kLimits.headers)
          __builtin_trap();
        seen += request.method + " " + request.path + " " + request.body + "\n";
        for (const auto& fields : {request.query, request.headers})
          for (const auto& [name, value] : fields) seen += name + ": " + value + "\n";
        parser.feed({});
      }
    } while (!bytes.empty());
  } catch (const Refusal& refusal) {
    seen += std::to_string(refusal.status());
  }
  return seen;
}

}  // namespace

// Any bytes as a connection: requests within the limits or a Refusal, the same ones however the
// bytes are cut.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = read(bytes, std::max<size_t>(size, 1));
  for (const size_t piece : {size_t{1}, size_t{7}})
    if (read(bytes, piece) != whole) __builtin_trap();
  return 0;
}
