#include "tempera/base/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tempera/base/error.h"

namespace tempera {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw Error(
      concat("cannot read '", path.string(), "': ", std::generic_category().message(errno)));
}

}  // namespace

FileReader::FileReader(const std::filesystem::path& path) : path_(path) {
  // Not blocking, for a pipe would wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) fail(path);
  struct stat status = {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw Error(concat("cannot read '", path.string(), "': it is not a plain file"));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  changed_ = status.st_mtim;
}

FileReader::~FileReader() { ::close(descriptor_); }

size_t FileReader::read(std::span<char> out) {
  const uint64_t wanted = std::min<uint64_t>(out.size(), size_ - at_);
  size_t done = 0;
  while (done < wanted) {
    const ssize_t count =
        ::pread(descriptor_, out.data() + done, wanted - done, static_cast<off_t>(at_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  at_ += done;
  if (done < wanted || at_ == size_) check_unchanged();
  return done;
}

void FileReader::check_unchanged() const {
  struct stat now = {};
  if (::fstat(descriptor_, &now) != 0) fail(path_);
  const auto size = static_cast<uint64_t>(now.st_size);
  TEMPERA_CHECK(size == size_ && now.st_mtim.tv_sec == changed_.tv_sec &&
                    now.st_mtim.tv_nsec == changed_.tv_nsec,
                "'", path_.string(), "' changed while it was read: it had ", size_, " bytes, now ",
                size, "; wait until it is written, and run again");
}

}  // namespace tempera
