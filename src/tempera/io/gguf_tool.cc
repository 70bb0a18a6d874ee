// gguf_tool list PATH                 metadata and tensors as JSON
// gguf_tool copy FROM TO              reads and writes a file, tensors in their order
// gguf_tool floats PATH TO            the elements of all tensors, by name, as float32
// gguf_tool bfloat16s PATH TO         the same as bfloat16
// gguf_tool quantize TYPE FROM TO     float32 values as the blocks of a type
#include <algorithm>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"
#include "tempera/io/gguf_blocks.h"

namespace {

using nlohmann::json;
using tempera::io::Gguf;
using tempera::io::GgufTensor;

json json_of(const tempera::io::GgufValue& value) {
  return std::visit(
      []<class T>(const T& held) -> json {
        if constexpr (std::is_same_v<T, tempera::io::GgufArray>) {
          return std::visit([](const auto& items) { return json(items); }, held);
        } else {
          return held;
        }
      },
      value);
}

void list(const Gguf& file) {
  json out{{"metadata", json::object()}, {"tensors", json::object()}};
  for (const auto& [key, value] : file.metadata().entries())
    out["metadata"][key] = {{"type", tempera::io::gguf_type_name(value)},
                            {"value", json_of(value)}};
  for (const GgufTensor& tensor : file.tensors())
    out["tensors"][tensor.name] = {{"type", info_of(tensor.type).name},
                                   {"shape", tensor.shape},
                                   {"bytes", tensor.bytes.size()}};
  std::cout << out.dump() << "\n";
}

void copy(const Gguf& from, const std::string& to) {
  std::vector<GgufTensor> tensors(from.tensors().begin(), from.tensors().end());
  std::ranges::sort(tensors, {}, [](const GgufTensor& tensor) { return tensor.bytes.data(); });
  write_gguf(to, from.metadata(), tensors);
}

template <class T>
std::string_view as_text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// In two calls, the second from the middle row on.
template <class T>
void elements(const Gguf& file, const std::string& to) {
  tempera::stream_file(to, [&](tempera::FunctionRef<void(std::string_view)> write) {
    for (const GgufTensor& tensor : file.tensors()) {
      const int64_t rows = row_count(tensor), half = rows / 2, columns = column_count(tensor);
      std::vector<T> values(static_cast<size_t>(rows * columns));
      const std::span<T> all(values);
      const auto split = static_cast<size_t>(half * columns);
      dequantize_rows(tensor, 0, half, all.first(split));
      dequantize_rows(tensor, half, rows, all.subspan(split));
      write(as_text(values));
    }
  });
}

void quantize(const std::string& type, const std::string& from, const std::string& to) {
  const tempera::MappedFile file(from);
  std::vector<float> values(file.size() / sizeof(float));
  std::memcpy(values.data(), file.bytes().data(), values.size() * sizeof(float));
  for (uint32_t id = 0; id < 64; ++id) {
    const auto* info = tempera::io::find_ggml_type(id);
    if (!info || info->name != type) continue;
    std::vector<std::byte> out(values.size() / info->block_elements * info->block_bytes);
    tempera::io::quantize(info->type, values, out);
    return tempera::write_file(to, as_text(out));
  }
  throw tempera::Error("no type " + type);
}

int run(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  if (verb == "list" && arguments.size() == 2) {
    list(Gguf(arguments[1]));
  } else if (verb == "copy" && arguments.size() == 3) {
    copy(Gguf(arguments[1]), arguments[2]);
  } else if (verb == "floats" && arguments.size() == 3) {
    elements<float>(Gguf(arguments[1]), arguments[2]);
  } else if (verb == "bfloat16s" && arguments.size() == 3) {
    elements<uint16_t>(Gguf(arguments[1]), arguments[2]);
  } else if (verb == "quantize" && arguments.size() == 4) {
    quantize(arguments[1], arguments[2], arguments[3]);
  } else {
    std::cerr << "list PATH, copy FROM TO, floats PATH TO, bfloat16s PATH TO or quantize TYPE FROM "
                 "TO expected\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
