#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tempera::io {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Files put together by hand, independent of the writer.
template <class T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

inline std::string text(std::string_view value) {
  return number<uint64_t>(value.size()) + std::string(value);
}

// A metadata entry: the key, the number of its type, the bytes of its value.
inline std::string entry(std::string_view key, uint32_t type, const std::string& value) {
  return text(key) + number(type) + value;
}

// What the file says about a tensor; `dimensions` in the file's order, the fastest first.
inline std::string tensor_entry(std::string_view name, std::initializer_list<uint64_t> dimensions,
                                uint32_t type, uint64_t offset) {
  std::string out = text(name) + number(static_cast<uint32_t>(dimensions.size()));
  for (const uint64_t size : dimensions) out += number(size);
  return out + number(type) + number(offset);
}

struct HandMadeGguf {
  uint32_t version = 3;
  uint64_t tensor_count = 0, key_count = 0;
  std::string keys = {}, tensors = {};
  uint64_t data_bytes = 0;
  uint64_t alignment = 32;

  std::string bytes() const {
    std::string out =
        "GGUF" + number(version) + number(tensor_count) + number(key_count) + keys + tensors;
    if (data_bytes == 0) return out;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out.append(data_bytes, 'd');
  }
};

}  // namespace tempera::io
