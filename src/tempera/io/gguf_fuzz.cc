#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"
#include "tempera/io/gguf_blocks.h"

namespace {

using tempera::io::GgufTensor;

void require(bool condition) {
  if (!condition) std::abort();
}

// Every element of an accepted tensor can be read.
template <class T>
void read_elements(const GgufTensor& tensor) {
  const int64_t rows = row_count(tensor), columns = column_count(tensor);
  require(rows == 0 || columns <= std::numeric_limits<int64_t>::max() / rows);
  std::vector<T> out(static_cast<size_t>(rows * columns));
  try {
    dequantize_rows(tensor, 0, rows, std::span<T>(out));
  } catch (const tempera::Error&) {
    constexpr std::string_view kReadable[] = {"F32",  "F16",  "BF16", "Q8_0", "Q4_0", "Q4_1",
                                              "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
    require(std::ranges::count(kReadable, info_of(tensor.type).name) == 0);
  }
}

// What was accepted lies inside the file, and survives being written and read again.
void check_accepted(std::span<const std::byte> file, const tempera::io::GgufContents& contents) {
  size_t total = 0;
  for (const GgufTensor& tensor : contents.tensors) {
    require(tensor.bytes.empty() ||
            (tensor.bytes.data() >= file.data() &&
             tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size()));
    total += tensor.bytes.size();
    read_elements<float>(tensor);
    read_elements<uint16_t>(tensor);
  }
  require(total <= file.size());
  const uint64_t alignment =
      static_cast<uint64_t>(contents.metadata.get_or<int64_t>("general.alignment", 32));
  if (alignment > 4096) return;  // padding that no memory holds
  for (const GgufTensor& tensor : contents.tensors)
    if (tensor.name.size() > 63) return;  // which the writer refuses
  std::string copy = tempera::io::gguf_header(contents.metadata, contents.tensors);
  const size_t header = copy.size();
  require(header % alignment == 0);
  for (const GgufTensor& tensor : contents.tensors) {
    copy.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    copy.resize((copy.size() + alignment - 1) / alignment * alignment);
  }
  const auto again = tempera::io::parse_gguf(std::as_bytes(std::span(copy)), "copy");
  // As bytes, for a value that is not a number equals nothing.
  require(tempera::io::gguf_header(again.metadata, again.tensors) == copy.substr(0, header));
  for (size_t i = 0; i < again.tensors.size(); ++i)
    require(std::ranges::equal(again.tensors[i].bytes, contents.tensors[i].bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  tempera::io::GgufContents contents;
  try {
    contents = tempera::io::parse_gguf(file, "input");
  } catch (const tempera::Error&) {  // a refusal is the usual answer
    return 0;
  }
  check_accepted(file, contents);
  return 0;
}
