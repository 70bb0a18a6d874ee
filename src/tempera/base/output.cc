#include "tempera/base/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/files.h"

namespace tempera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kAdvice = "; give another place with --out";

std::string reason(int error) { return std::generic_category().message(error); }

// Absolute, with links followed and without a slash at its end: 'out/' and '.' have a parent and a
// name then.
fs::path plain(const fs::path& path) {
  std::error_code code;
  fs::path result = fs::weakly_canonical(fs::absolute(path), code);
  if (code) result = fs::absolute(path).lexically_normal();
  if (!result.has_filename()) result = result.parent_path();
  return result;
}

bool something_at(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_plain_file(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::regular;
}

// The first folder on the way up from here that is there.
fs::path nearest_folder(fs::path path) {
  while (!something_at(path) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Whether new names can be put there, or below once it is made.
void check_writable(const fs::path& folder) {
  const fs::path nearest = nearest_folder(folder);
  TEMPERA_CHECK(is_folder(nearest), "'", nearest.string(), "' is not a folder", kAdvice);
  TEMPERA_CHECK(::access(nearest.c_str(), W_OK | X_OK) == 0, "cannot write in the folder '",
                nearest.string(), "': ", reason(errno), kAdvice);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    entries.push_back(it->path());
  TEMPERA_CHECK(!code, "cannot read the folder '", folder.string(), "': ", code.message(), kAdvice);
  std::ranges::sort(entries);
  return entries;
}

// Like rename, but never in the place of something.
void rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  int error = errno;
  if (error == EINVAL || error == ENOSYS) {  // the file system cannot refuse by itself
    error = something_at(to) ? EEXIST : ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    if (error == 0) return;
  }
  throw Error(concat("cannot write ", to.string(), ": ", reason(error), kAdvice));
}

// All or none.
void move_entries(const fs::path& from, const fs::path& to) {
  std::vector<fs::path> moved;
  try {
    for (const auto& entry : entries_of(from)) {
      rename_to_new(entry, to / entry.filename());
      moved.push_back(to / entry.filename());
    }
  } catch (...) {
    std::error_code ignored;
    for (const auto& path : moved) fs::remove_all(path, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove(from, ignored);
}

constexpr size_t kLongestLock = 32;
constexpr uint64_t kLargestMark = 16U << 20;

std::string read_lock(int descriptor) {
  std::array<char, kLongestLock + 1> text{};
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), count > 0 ? static_cast<size_t>(count) : 0};
}

// A process of ours writes its number into its lock; an empty one was just made.
bool is_lock_text(const std::string& text) {
  return text.size() <= kLongestLock &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || c == '\n'; });
}

bool is_lock(const fs::path& path) {
  if (path.filename() != kLock || !is_plain_file(path)) return false;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const std::string text = read_lock(descriptor);
  ::close(descriptor);
  return is_lock_text(text);
}

// Over the whole file, and of the open file and not of the process: two threads exclude each other
// too, and a child that closes its copy lets go of nothing.
struct flock whole_file(short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

bool is_held_by_another(int error) { return error == EAGAIN || error == EACCES; }

// Whether the name still leads to the open file: its holder may have removed it meanwhile.
bool same_file(int descriptor, const fs::path& path) {
  struct stat open = {}, named = {};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// Whether a run is in the folder; throws unless one is or can begin.
bool check_work_folder(const fs::path& folder, const std::vector<std::string>& names) {
  if (!something_at(folder)) {
    check_writable(plain(folder));
    return false;
  }
  TEMPERA_CHECK(is_folder(folder), "'", folder.string(), "' is there and is not a folder", kAdvice);
  const auto entries = entries_of(folder);
  check_writable(folder);
  if (is_plain_file(folder / WorkFolder::kMark)) return true;
  for (const auto& entry : entries) {
    // A process that was killed may have got no further than these.
    const auto part_of = owner_of_part(entry);
    const bool ours = is_lock(entry) || (part_of && std::ranges::count(names, *part_of) > 0);
    TEMPERA_CHECK(ours, "'", folder.string(), "' holds '", entry.filename().string(),
                  "' and is not the folder of a run", kAdvice);
  }
  return false;
}

}  // namespace

MadeFolder::MadeFolder(const fs::path& folder) {
  std::vector<fs::path> missing;
  for (fs::path path = plain(folder); !something_at(path); path = path.parent_path())
    missing.push_back(path);
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    if (::mkdir(path->c_str(), 0777) == 0) {
      made_.push_back(*path);
    } else if (errno != EEXIST) {
      const int error = errno;
      undo();
      throw Error(
          concat("cannot make the folder '", path->string(), "': ", reason(error), kAdvice));
    }
  }
}

void MadeFolder::undo() noexcept {
  for (; !made_.empty(); made_.pop_back())
    if (::rmdir(made_.back().c_str()) != 0) break;
  made_.clear();
}

NewOutput::NewOutput(fs::path path, Kind kind) : given_(std::move(path)), kind_(kind) {
  TEMPERA_CHECK(!given_.empty(), "no name of what to write; give one with --out");
  const bool file = kind == Kind::kFile;
  TEMPERA_CHECK(!file || given_.has_filename(), "'", given_.string(),
                "' is the name of a folder; give that of a file with --out");
  path_ = plain(given_);
  if (!something_at(path_)) {
    check_writable(path_.parent_path());
    return;
  }
  TEMPERA_CHECK(!file && is_folder(path_), "'", given_.string(), "' is there already", kAdvice);
  const auto entries = entries_of(path_);
  TEMPERA_CHECK(entries.empty(), "'", given_.string(), "' is there already and holds '",
                entries.front().filename().string(), "'", kAdvice);
  check_writable(path_);
}

NewOutput::~NewOutput() {
  if (part_.empty()) return;
  std::error_code ignored;
  fs::remove_all(part_, ignored);
  parent_.undo();
}

const fs::path& NewOutput::part() {
  if (!part_.empty()) return part_;
  // An empty folder stays the one that it is: it may be another's link, or where a disk is mounted.
  const bool inside = is_folder(path_);
  parent_ = MadeFolder(path_.parent_path());
  const fs::path part = part_name(inside ? path_ / path_.filename() : path_);
  if (kind_ == Kind::kFolder && ::mkdir(part.c_str(), 0777) != 0) {
    const int error = errno;
    parent_.undo();
    throw Error(concat("cannot make the folder '", part.string(), "': ", reason(error), kAdvice));
  }
  part_ = part;
  return part_;
}

void NewOutput::finish() {
  const fs::path made = part();
  if (kind_ == Kind::kFolder) sync_folder(made);
  if (made.parent_path() == path_) {
    move_entries(made, path_);
    sync_folder(path_);
  } else {
    rename_to_new(made, path_);
    sync_folder(path_.parent_path());
  }
  part_.clear();
}

WorkFolder::WorkFolder(fs::path path, std::vector<std::string> names)
    : path_(std::move(path)), names_(std::move(names)) {
  TEMPERA_CHECK(!path_.empty(), "a run needs a folder; give one with --out");
  names_.emplace_back(kMark);
  check_work_folder(path_, names_);
  try {
    lock();
    marked_ = check_work_folder(path_, names_);  // another process may have begun one meanwhile
  } catch (...) {
    if (made_lock_) ::unlink((path_ / kLock).c_str());
    if (lock_ >= 0) ::close(lock_);
    made_.undo();
    throw;
  }
  remove_parts(path_, names_);
}

WorkFolder::~WorkFolder() {
  if (!kept_) {
    std::error_code ignored;
    if (!marked_)
      for (const auto& name : names_)
        if (aside_.empty() || name != kMark) fs::remove_all(path_ / name, ignored);
    put_back();
    if (made_lock_) fs::remove(path_ / kLock, ignored);
    made_.undo();
  }
  ::close(lock_);
}

fs::path WorkFolder::set_aside() {
  TEMPERA_CHECK(marked_ && aside_.empty(), "no run to set aside in '", path_.string(), "'");
  for (int number = 1; aside_.empty(); ++number) {
    const fs::path folder = path_ / concat("before-", number);
    if (::mkdir(folder.c_str(), 0777) == 0)
      aside_ = folder;
    else if (errno != EEXIST)
      throw Error(concat("cannot make the folder '", folder.string(), "': ", reason(errno)));
  }
  try {
    // The mark stays until that of the new run takes its place, so that the folder is a run's
    // whenever the process is killed.
    write_file(aside_ / kMark, read_file(mark(), kLargestMark));
    for (const auto& name : names_)
      if (name != kMark && something_at(path_ / name)) rename_to_new(path_ / name, aside_ / name);
  } catch (...) {
    put_back();
    throw;
  }
  marked_ = false;
  return aside_;
}

void WorkFolder::put_back() noexcept {
  if (aside_.empty()) return;
  std::error_code ignored;
  for (const auto& name : names_)  // the mark is the last
    if (something_at(aside_ / name)) fs::rename(aside_ / name, path_ / name, ignored);
  fs::remove(aside_, ignored);
  aside_.clear();
}

void WorkFolder::lock() {
  int attempts = 0;
  while (!try_lock())
    TEMPERA_CHECK(++attempts < 100, "cannot lock the folder '", path_.string(), "'", kAdvice);
  // Only for messages: a full disk must not keep a run from being opened.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_, 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(lock_, pid.data(), pid.size(), 0);
}

bool is_worked_in(const fs::path& folder) {
  const fs::path path = folder / kLock;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    TEMPERA_CHECK(errno == ENOENT, "cannot read ", path.string(), ": ", reason(errno));
    return false;
  }
  // Asks and takes nothing: a process that is just opening the folder must not find it locked.
  struct flock range = whole_file(F_RDLCK);
  const bool held = ::fcntl(descriptor, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
  ::close(descriptor);
  return held;
}

// False where the holder removed its lock, and perhaps the folder, before it let go of it.
bool WorkFolder::try_lock() {
  if (!is_folder(path_)) made_ = MadeFolder(path_);
  const fs::path path = path_ / kLock;
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  made_lock_ = lock_ >= 0;
  if (lock_ < 0 && errno == EEXIST)
    lock_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (lock_ < 0 && errno == ENOENT) return false;
  TEMPERA_CHECK(lock_ >= 0, "cannot write in the folder '", path_.string(), "': ", reason(errno),
                kAdvice);
  const std::string text = read_lock(lock_);
  TEMPERA_CHECK(is_lock_text(text), "'", path_.string(),
                "' holds a 'lock' that this program did not write", kAdvice);
  const struct flock range = whole_file(F_WRLCK);
  if (::fcntl(lock_, F_OFD_SETLK, &range) != 0) {
    const int error = errno;
    made_lock_ = false;
    TEMPERA_CHECK(is_held_by_another(error), "cannot lock ", path.string(), ": ", reason(error));
    const std::string holder = text.substr(0, text.find('\n'));
    throw Error(concat("another process", holder.empty() ? "" : " (pid " + holder + ")",
                       " is working in '", path_.string(),
                       "'; wait for it or stop it, or give another folder with --out"));
  }
  if (same_file(lock_, path)) return true;
  ::close(std::exchange(lock_, -1));
  return false;
}

}  // namespace tempera
