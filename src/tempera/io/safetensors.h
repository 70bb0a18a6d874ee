#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/files.h"
#include "tempera/io/dtype.h"

namespace tempera::io {

// One tensor: row-major, little-endian, bytes owned by someone else. In a file of another program
// the bytes may start at any address, so load elements with memcpy or check the alignment first.
struct TensorView {
  std::string name = {};
  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsContents {
  std::vector<TensorView> tensors;  // sorted by name
  Metadata metadata;
};

// Reads a whole file's bytes, which may be hostile; the views point into them. `where` names them
// in messages.
SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view where);

// The tensors of a .safetensors file, or of a folder with model.safetensors or with shards and
// their model.safetensors.index.json; memory-mapped for as long as this object lives.
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path);

  // Sorted by name.
  std::span<const TensorView> tensors() const { return contents_.tensors; }
  const Metadata& metadata() const { return contents_.metadata; }
  // Null when there is none of that name.
  const TensorView* find(std::string_view name) const;
  // Throws when there is none of that name.
  const TensorView& at(std::string_view name) const;

 private:
  void open_file(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& folder);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  SafetensorsContents contents_;
};

// The bytes that stand before the tensors' own in a file, which follow without gaps in the order
// that `tensors` has afterwards.
std::string safetensors_header(std::vector<TensorView>& tensors, const Metadata& metadata);

// Replaces the file as a whole; the tensors' bytes go from their spans to the disk without a copy.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                       const Metadata& metadata = {});

// Writes model.safetensors, or shards of at most `shard_bytes` of tensors each with their index,
// into a folder that has none of these yet. A tensor larger than that gets a shard of its own. The
// index comes last: a folder without it is unfinished.
void write_safetensors_folder(const std::filesystem::path& folder,
                              const std::vector<TensorView>& tensors, const Metadata& metadata,
                              uint64_t shard_bytes);

}  // namespace tempera::io
