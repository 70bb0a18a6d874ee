#include "tempera/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <random>
#include <system_error>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/mappings.h"

namespace tempera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartMiddle = ".tempera-", kPartEnd = ".part";
constexpr size_t kDigits = 16;

[[noreturn]] void fail(std::string_view what, const fs::path& path, int error) {
  throw Error(
      concat("cannot ", what, " ", path.string(), ": ", std::generic_category().message(error)));
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, std::string_view what) {
    do {
      descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail(what, path, errno);
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }

  // Some file systems report a failed write only here.
  void close(const fs::path& path) {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("write", path, errno);
  }

 private:
  int descriptor_ = -1;
};

// Opens a plain file and tells its size. Not blocking, for a pipe would wait for its writer.
struct PlainFile {
  explicit PlainFile(const fs::path& path) : descriptor(path, O_RDONLY | O_NONBLOCK, "open") {
    struct stat status = {};
    if (::fstat(descriptor.get(), &status) != 0) fail("read", path, errno);
    if (S_ISDIR(status.st_mode)) fail("read", path, EISDIR);
    TEMPERA_CHECK(S_ISREG(status.st_mode), "cannot read ", path.string(), ": not a plain file");
    size = static_cast<uint64_t>(status.st_size);
  }

  Descriptor descriptor;
  uint64_t size;
};

void write_all(const Descriptor& file, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, std::span<const std::string_view>(&bytes, 1));
}

void write_file(const fs::path& path, std::span<const std::string_view> parts) {
  stream_file(path, [&](FunctionRef<void(std::string_view)> write) {
    for (const std::string_view part : parts) write(part);
  });
}

void stream_file(const fs::path& path,
                 FunctionRef<void(FunctionRef<void(std::string_view)> write)> produce) {
  const fs::path beside = part_name(path);
  Descriptor file(beside, O_WRONLY | O_CREAT | O_EXCL, "write");
  try {
    produce([&](std::string_view part) { write_all(file, part, path); });
    if (::fsync(file.get()) != 0) fail("write", path, errno);
    file.close(path);
    if (::rename(beside.c_str(), path.c_str()) != 0) fail("write", path, errno);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

fs::path part_name(const fs::path& path) {
  // Random and not the process id, for processes of two machines or containers may share the
  // folder.
  std::random_device random;
  std::array<char, kDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%08x%08x", random(), random());
  // Names may have 255 bytes.
  const std::string name = path.filename().string().substr(0, 200);
  return folder_of(path) / concat(".", name, kPartMiddle, digits.data(), kPartEnd);
}

std::optional<std::string> owner_of_part(const fs::path& path) {
  const std::string name = path.filename().string();
  const size_t tail = kPartMiddle.size() + kDigits + kPartEnd.size();
  if (!name.starts_with('.') || name.size() <= 1 + tail) return std::nullopt;
  const size_t end = name.size() - tail;
  const std::string_view rest = std::string_view(name).substr(end);
  const std::string_view digits = rest.substr(kPartMiddle.size(), kDigits);
  if (!rest.starts_with(kPartMiddle) || !rest.ends_with(kPartEnd) ||
      digits.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  return name.substr(1, end - 1);
}

void remove_parts(const fs::path& folder, const std::vector<std::string>& names) {
  std::error_code ignored;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const auto owner = owner_of_part(entry.path());
        owner && std::ranges::count(names, *owner) > 0)
      parts.push_back(entry.path());
  for (const auto& part : parts) fs::remove_all(part, ignored);
}

std::string read_file(const fs::path& path, uint64_t limit) {
  const PlainFile file(path);
  TEMPERA_CHECK(file.size <= limit, "cannot read ", path.string(), ": it has ", file.size,
                " bytes, at most ", limit, " expected");
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.descriptor.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path, errno);
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(count));
    // Files such as those of /proc tell no size, and others grow.
    TEMPERA_CHECK(bytes.size() <= limit, "cannot read ", path.string(), ": it has more than ",
                  limit, " bytes");
  }
}

void sync_folder(const fs::path& path) {
  const Descriptor descriptor(path, O_RDONLY | O_DIRECTORY, "open");
  if (::fsync(descriptor.get()) != 0) fail("sync", path, errno);
}

MappedFile::MappedFile(const fs::path& path) {
  const PlainFile file(path);
  TEMPERA_CHECK(file.size <= std::numeric_limits<size_t>::max(), "cannot map ", path.string(),
                ": it has ", file.size, " bytes");
  if (file.size == 0) return;  // mmap refuses an empty range
  void* data = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.descriptor.get(), 0);
  if (data == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = file.size;
  note_mapping(bytes(), path.string());
}

MappedFile::~MappedFile() {
  if (!data_) return;
  forget_mapping(bytes());
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "tempera-XXXXXX").string();
  if (!::mkdtemp(name.data())) fail("make", name, errno);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tempera
