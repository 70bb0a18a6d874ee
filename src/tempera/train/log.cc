#include "tempera/train/log.h"

#include <fcntl.h>
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

}  // namespace

std::vector<Json> read_log(const std::filesystem::path& path) {
  std::vector<Json> lines;
  const std::string text = read_file(path, kMostLog);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    Json line = Json::parse(std::string_view(text).substr(begin, end - begin), nullptr,
                            /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step")) break;
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
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

void RunLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_);
    left.remove_prefix(static_cast<size_t>(written));
  }
}

void RunLog::sync() {
  if (::fsync(descriptor_) != 0) fail(path_);
}

}  // namespace tempera::train
