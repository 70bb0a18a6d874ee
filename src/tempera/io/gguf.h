#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/files.h"
#include "tempera/base/parallel.h"
#include "tempera/io/ggml_type.h"
#include "tempera/io/gguf_metadata.h"

namespace tempera::io {

// One tensor: row-major, so that the shape is the file's list of dimensions reversed; blocks of its
// type fill the rows. Bytes are owned by someone else and may start at any address.
struct GgufTensor {
  std::string name = {};
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

struct GgufContents {
  std::vector<GgufTensor> tensors;  // sorted by name
  GgufMetadata metadata;
};

// Reads a whole file's bytes, which may be hostile; the tensors point into them. `where` names them
// in messages.
GgufContents parse_gguf(std::span<const std::byte> file, std::string_view where);

// A .gguf file of version 2 or 3, memory-mapped for as long as this object lives. The first part of
// a model in several files stands for all of them; its metadata is then that of the whole.
class Gguf {
 public:
  explicit Gguf(const std::filesystem::path& path);

  const GgufMetadata& metadata() const { return contents_.metadata; }
  // Sorted by name.
  std::span<const GgufTensor> tensors() const { return contents_.tensors; }
  // Null when there is none of that name.
  const GgufTensor* find(std::string_view name) const;
  // Throws when there is none of that name.
  const GgufTensor& at(std::string_view name) const;

 private:
  void add_part(const std::filesystem::path& path, int64_t part, int64_t parts);
  // Once all are there.
  void finish_parts();

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  GgufContents contents_;
};

// The bytes that stand before the tensors' own in a file of version 3, padded. The tensors follow
// in the order given, each padded to the alignment: general.alignment where the metadata has it,
// else 32.
std::string gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors);

// Replaces the file as a whole; the tensors' bytes go from their spans to the disk without a copy.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors);

// The same for tensors that are made while they are written, such as quantised ones: bytes(i) is
// called once for each in turn, and what it gives need only live until the next call. The spans in
// `tensors` are not used.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                std::span<const GgufTensor> tensors,
                FunctionRef<std::span<const std::byte>(size_t index)> bytes);

}  // namespace tempera::io
