#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>

namespace tempera {

// A plain file that is read from its begin to its end, as often as one likes. A file that is
// written to meanwhile is refused. Throws Error with the path and the system's reason.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  uint64_t size() const { return size_; }
  // The next bytes, as many as `out` takes or the file has left; 0 at its end.
  size_t read(std::span<char> out);
  void rewind() { at_ = 0; }

 private:
  void check_unchanged() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  timespec changed_ = {};
  uint64_t at_ = 0;
};

}  // namespace tempera
