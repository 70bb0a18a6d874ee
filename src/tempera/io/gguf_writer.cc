#include <set>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"
#include "tempera/io/gguf_layout.h"

namespace tempera::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "GGUF";
constexpr uint32_t kVersion = 3;
// llama.cpp keeps a name in 64 bytes with a zero at the end and refuses the file otherwise.
constexpr size_t kMostWrittenName = 63;

template <class T>
void put(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    put(out, uint64_t{value.size()});
    out += value;
  } else {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
}

void put_array(std::string& out, const GgufArray& array) {
  const size_t type = array.index() + (array.index() >= kGgufArrayIndex ? 1 : 0);
  put(out, static_cast<uint32_t>(type));
  std::visit(
      [&]<class T>(const std::vector<T>& items) {
        put(out, uint64_t{items.size()});
        for (const T& item : items) put(out, item);
      },
      array);
}

void put_value(std::string& out, const GgufValue& value) {
  put(out, static_cast<uint32_t>(value.index()));
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_same_v<T, GgufArray>) {
          put_array(out, held);
        } else {
          put(out, held);
        }
      },
      value);
}

void check_name(const GgufTensor& tensor, std::set<std::string_view>& names) {
  TEMPERA_CHECK(names.insert(tensor.name).second, kWhere, ": two tensors named \"", tensor.name,
                "\"");
  TEMPERA_CHECK(tensor.name.size() <= kMostWrittenName, kWhere, ": the tensor's name \"",
                tensor.name, "\" has ", tensor.name.size(), " bytes; readers take at most ",
                kMostWrittenName);
  TEMPERA_CHECK(tensor.shape.size() <= kMostGgufDimensions, kWhere, ": tensor \"", tensor.name,
                "\" has ", tensor.shape.size(), " dimensions; at most ", kMostGgufDimensions,
                " expected");
}

uint64_t bytes_of(const GgufTensor& tensor) {
  return ggml_bytes(tensor.type, tensor.shape, concat(kWhere, ": tensor \"", tensor.name, "\""));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  const uint64_t alignment = gguf_alignment(metadata, kWhere);
  std::string out(kGgufMagic);
  put(out, kVersion);
  put(out, uint64_t{tensors.size()});
  put(out, uint64_t{metadata.entries().size()});
  for (const auto& [key, value] : metadata.entries()) {
    TEMPERA_CHECK(key.size() <= kMostNameBytes, kWhere, ": a metadata key of ", key.size(),
                  " bytes; at most ", kMostNameBytes, " expected");
    put(out, key);
    put_value(out, value);
  }
  std::set<std::string_view> names;
  uint64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    check_name(tensor, names);
    put(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put(out, static_cast<uint64_t>(tensor.shape[i]));
    put(out, static_cast<uint32_t>(tensor.type));
    put(out, at);
    at = align_up(at + bytes_of(tensor), alignment, kWhere);
  }
  out.resize(align_up(out.size(), alignment, kWhere), '\0');
  return out;
}

void write_gguf(const fs::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors) {
  write_gguf(path, metadata, tensors, [&](size_t i) { return tensors[i].bytes; });
}

void write_gguf(const fs::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors,
                FunctionRef<std::span<const std::byte>(size_t)> bytes) {
  const std::string header = gguf_header(metadata, tensors);
  const uint64_t alignment = gguf_alignment(metadata, kWhere);
  const std::string zeros(alignment - 1, '\0');
  stream_file(path, [&](FunctionRef<void(std::string_view)> write) {
    write(header);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto part = bytes(i);
      const uint64_t expected = bytes_of(tensors[i]);
      TEMPERA_CHECK(part.size() == expected, kWhere, ": tensor \"", tensors[i].name, "\" has ",
                    part.size(), " bytes; its shape ", shape_text(tensors[i].shape), " and type ",
                    info_of(tensors[i].type).name, " need ", expected);
      write(as_text(part));
      write(std::string_view(zeros).substr(0, align_up(expected, alignment, kWhere) - expected));
    }
  });
}

}  // namespace tempera::io
