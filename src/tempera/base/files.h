#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/parallel.h"

namespace tempera {

// Every function throws Error with the path and the system's reason.

// Replaces the file as a whole: written beside, synced, renamed. After a crash or on a full disk
// the file holds the old bytes or the new ones, never a part.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// The same for bytes that lie in several places: written one after the other, without a copy.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts);
// The same for bytes that are made while they are written: `produce` gets a function that appends.
// When it throws, the file keeps its old bytes.
void stream_file(const std::filesystem::path& path,
                 FunctionRef<void(FunctionRef<void(std::string_view)> write)> produce);

// A name beside the path for what is not complete yet: ".NAME.tempera-", 16 random digits, ".part".
std::filesystem::path part_name(const std::filesystem::path& path);
// The NAME of such a name; unset for others, which may be a person's.
std::optional<std::string> owner_of_part(const std::filesystem::path& path);
// Removes what processes that were killed left of these names in a folder.
void remove_parts(const std::filesystem::path& folder, const std::vector<std::string>& names);

// The whole file; refuses one of more than `limit` bytes, and anything that is not a plain file.
std::string read_file(const std::filesystem::path& path, uint64_t limit);

// Waits until the names in a folder are on the disk.
void sync_folder(const std::filesystem::path& path);

// A file's bytes mapped for reading. Another process that shortens the file while it is mapped ends
// this one with SIGBUS: map only files that are replaced by renaming, as write_file does.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A new empty folder that is removed with all it holds.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tempera
