#include "tempera/train/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/files.h"

namespace tempera::train {
namespace {

constexpr uint64_t kMostLog = uint64_t{1} << 36;

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw Error(concat("cannot write ", path.string(), ": ", std::generic_category().message(errno)));
}

[[noreturn]] void fail_to_read(const std::filesystem::path& path, int descriptor) {
  const std::string reason = std::generic_category().message(errno);
  if (descriptor >= 0) ::close(descriptor);
  throw Error(concat("cannot read ", path.string(), ": ", reason));
}

// Adds the lines up to the first that is torn, and gives where that begins.
size_t take_lines(std::string_view text, std::vector<Json>& lines) {
  size_t begin = 0;
  while (true) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return begin;
    Json line = Json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step")) return begin;
    lines.push_back(std::move(line));
    begin = end + 1;
  }
}

}  // namespace

std::vector<Json> read_log(const std::filesystem::path& path) {
  std::vector<Json> lines;
  take_lines(read_file(path, kMostLog), lines);
  return lines;
}

LogReader::News LogReader::read() {
  News news;
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && errno == ENOENT) {
    news.anew = std::exchange(begin_, 0) > 0;
    return news;
  }
  struct stat found = {};
  if (descriptor < 0 || ::fstat(descriptor, &found) != 0) fail_to_read(path_, descriptor);
  const auto size = static_cast<uint64_t>(found.st_size);
  if (found.st_ino != std::exchange(file_, found.st_ino) || size < begin_)
    news.anew = std::exchange(begin_, 0) > 0;
  std::string text(size - begin_, '\0');
  size_t count = 0;
  while (count < text.size()) {
    const ssize_t part = ::pread(descriptor, text.data() + count, text.size() - count,
                                 static_cast<off_t>(begin_ + count));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) fail_to_read(path_, descriptor);
    if (part == 0) break;
    count += static_cast<size_t>(part);
  }
  ::close(descriptor);
  begin_ += take_lines(std::string_view(text).substr(0, count), news.lines);
  return news;
}

RunLog::RunLog(std::filesystem::path path, int64_t step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    std::string kept;
    for (const Json& line : read_log(path_))
      if (line["step"].is_number_integer() && line["step"].get<int64_t>() <= step)
        kept += line.dump() + "\n";
    write_file(path_, kept);
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path_);
}

RunLog::~RunLog() { ::close(descriptor_); }

void RunLog::mirror(const std::filesystem::path& folder, const std::string& run) {
  mirror_ = std::make_unique<EventLog>(folder, run, read_log(path_));
}

void RunLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_);
    left.remove_prefix(static_cast<size_t>(written));
  }
  if (mirror_) mirror_->append(line);
}

void RunLog::sync() {
  if (::fsync(descriptor_) != 0) fail(path_);
  if (mirror_) mirror_->sync();
}

}  // namespace tempera::train
