#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "tempera/base/error.h"
#include "tempera/io/safetensors.h"

namespace {

using tempera::io::TensorView;

void require(bool condition) {
  if (!condition) std::abort();
}

// What was accepted lies inside the file, covers its data once, and survives being written and read
// again.
void check_accepted(std::span<const std::byte> file,
                    const tempera::io::SafetensorsContents& contents) {
  size_t total = 0;
  for (const TensorView& tensor : contents.tensors) {
    require(tensor.bytes.empty() ||
            (tensor.bytes.data() >= file.data() &&
             tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size()));
    total += tensor.bytes.size();
  }
  require(total <= file.size());
  auto tensors = contents.tensors;
  std::string copy = tempera::io::safetensors_header(tensors, contents.metadata);
  for (const TensorView& tensor : tensors)
    copy.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  const auto again = tempera::io::parse_safetensors(std::as_bytes(std::span(copy)), "copy");
  require(again.metadata == contents.metadata && again.tensors.size() == contents.tensors.size());
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    const TensorView &a = again.tensors[i], &b = contents.tensors[i];
    require(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape);
    require(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    check_accepted(file, tempera::io::parse_safetensors(file, "input"));
  } catch (const tempera::Error&) {  // a refusal is the usual answer
  }
  return 0;
}
