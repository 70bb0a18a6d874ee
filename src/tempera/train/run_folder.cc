#include "tempera/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/version.h"
#include "tempera/io/json.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr uint64_t kMostSettings = 16U << 20;

std::string make_id() {
  std::random_device random;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStep.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

// By falling step.
std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

// A link is replaced by renaming, so that it always leads somewhere.
void turn_link(const fs::path& link, const fs::path& target) {
  std::error_code code;
  const fs::path beside = link.parent_path() / concat(".", link.filename().string(), ".link");
  fs::remove(beside, code);
  fs::create_directory_symlink(target, beside, code);
  if (!code) fs::rename(beside, link, code);
  TEMPERA_CHECK(!code, "cannot make the link ", link.string(), ": ", code.message());
}

// Gives the path back, so that it comes before the lock makes anything in the folder.
const fs::path& checked(const fs::path& folder) {
  TEMPERA_CHECK(!folder.empty(), "a run needs a folder; give one with --out");
  std::error_code missing;
  if (!fs::is_directory(folder, missing) || fs::exists(folder / "run.json")) return folder;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    // A process may have ended before it wrote more than its lock.
    TEMPERA_CHECK(name == "lock" || name == "run.toml" || name.starts_with('.'), "'",
                  folder.string(), "' holds '", name,
                  "' and is not the folder of a run; give another one with --out");
  }
  return folder;
}

std::string holder_of(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t count = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string pid(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  pid.erase(std::min(pid.find('\n'), pid.size()));
  return pid.empty() ? "" : " (pid " + pid + ")";
}

// Whether the name still leads to the open file: its holder may have removed it meanwhile.
bool same_file(int descriptor, const fs::path& path) {
  struct stat open = {}, named = {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// What a conversion that was killed left behind; see convert_to_shards and write_file.
void remove_partial_files(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') && name.ends_with(".part")) fs::remove_all(entry, ignored);
  }
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : folder_(folder) {
  const fs::path path = folder / "lock";
  for (;;) {
    std::error_code code;
    made_ = fs::create_directories(folder, code) || made_;
    TEMPERA_CHECK(!code && fs::is_directory(folder, code), "cannot make the folder '",
                  folder.string(), "': ", code ? code.message() : "there is a file of that name",
                  "; give another one with --out");
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    TEMPERA_CHECK(descriptor_ >= 0, "cannot write in the folder '", folder.string(),
                  "': ", std::generic_category().message(errno), "; give another one with --out");
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string holder = holder_of(descriptor_);
      ::close(std::exchange(descriptor_, -1));
      TEMPERA_CHECK(error == EWOULDBLOCK, "cannot lock ", path.string(), ": ",
                    std::generic_category().message(error));
      throw Error(concat("another process", holder, " is working in '", folder.string(),
                         "'; wait for it or stop it, or give another folder with --out"));
    }
    if (same_file(descriptor_, path)) break;
    ::close(std::exchange(descriptor_, -1));
  }
  // Only for messages: a full disk must not keep a run from being opened.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(descriptor_, pid.data(), pid.size(), 0);
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FolderLock::undo() {
  std::error_code ignored;
  fs::remove(folder_ / "lock", ignored);
  if (made_) fs::remove(folder_, ignored);  // only if it is empty
}

RunFolder::RunFolder(const fs::path& path) : path_(checked(path)), lock_(path) {
  const fs::path file = path_ / "run.json";
  if (!fs::exists(file)) return;
  const std::string text = read_file(file, kMostSettings);
  const auto parsed = io::parse_json(text, file.string());
  TEMPERA_CHECK(parsed.is_object() && parsed.contains("id") && parsed["id"].is_string() &&
                    parsed.contains("settings"),
                file.string(), " is not the description of a run; give another folder with --out");
  const Json run = Json::parse(text);
  id_ = run["id"].get<std::string>();
  settings_ = run["settings"];
  kept_ = true;
  remove_leftovers(path_ / "checkpoints");
  remove_partial_files(path_);
}

RunFolder::~RunFolder() {
  if (kept_) return;
  std::error_code ignored;
  if (settings_)
    for (const char* name : {"run.json", "run.toml", "data"}) fs::remove_all(path_ / name, ignored);
  lock_.undo();
}

fs::path RunFolder::checkpoint_path(int64_t step) const {
  std::array<char, 40> name;
  std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  return path_ / "checkpoints" / name.data();
}

void RunFolder::begin(const Json& settings, const std::string& toml) {
  TEMPERA_CHECK(!settings_, "'", path_.string(), "' holds a run already");
  id_ = make_id();
  const Json run{{"id", id_}, {"program", version()}, {"settings", settings}};
  settings_ = settings;
  write_file(path_ / "run.toml", toml);
  write_file(path_ / "run.json", run.dump(2) + "\n");
}

std::optional<Checkpoint> RunFolder::newest(const Say& say) const {
  const auto found = checkpoints_in(path_ / "checkpoints");
  for (const auto& [step, path] : found) {
    try {
      Checkpoint checkpoint = read_checkpoint(path);
      const std::string run = checkpoint.state.value("run", "");
      TEMPERA_CHECK(run == id_, path.string(), " belongs to another run");
      TEMPERA_CHECK(checkpoint.state.value("step", int64_t{-1}) == step, path.string(),
                    " is of another step than its name says");
      return checkpoint;
    } catch (const Error& error) {
      say(concat("skipped a checkpoint: ", error.what()));
    }
  }
  TEMPERA_CHECK(found.empty(), "no checkpoint in '", (path_ / "checkpoints").string(),
                "' can be used (see above); put a good one there, or give another folder with "
                "--out to begin anew");
  return std::nullopt;
}

void RunFolder::save(Checkpoint checkpoint, int64_t step, std::optional<int64_t> best_step,
                     int64_t keep) {
  checkpoint.state["run"] = id_;
  write_checkpoint(checkpoint_path(step), checkpoint);
  const auto relative = [&](int64_t number) {
    return checkpoint_path(number).lexically_relative(path_);
  };
  turn_link(path_ / "last", relative(step));
  if (best_step && fs::exists(checkpoint_path(*best_step)))
    turn_link(path_ / "best", relative(*best_step));
  sync_folder(path_);
  int64_t kept = 0;
  for (const auto& [number, path] : checkpoints_in(path_ / "checkpoints")) {
    // A later one was skipped, for it is damaged or of another run: not ours to remove.
    if (number <= step && ++kept > keep && number != best_step) remove_checkpoint(path);
  }
}

}  // namespace tempera::train
