#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tempera/train/checkpoint.h"
#include "tempera/train/event_log.h"

namespace tempera::train {

// A file of JSON lines, each with a "step". Lines are written at once, so that an ended process
// loses none.
class RunLog {
 public:
  // Drops the lines after `step`, of a run that goes on from there, and a torn last one.
  RunLog(std::filesystem::path path, int64_t step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // From now on the lines, and those that are there, are events for TensorBoard in a folder, too.
  void mirror(const std::filesystem::path& folder, const std::string& run);

  void append(const Json& line);
  // Waits until all lines are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::unique_ptr<EventLog> mirror_;
};

// The lines up to the first that is torn.
std::vector<Json> read_log(const std::filesystem::path& path);

// Reads a log that another process writes.
class LogReader {
 public:
  explicit LogReader(std::filesystem::path path) : path_(std::move(path)) {}

  struct News {
    bool anew = false;  // a run that goes on has replaced the log: what was read before is void
    std::vector<Json> lines;
  };
  // The lines that were completed since the last call; none where there is no log yet.
  News read();

 private:
  std::filesystem::path path_;
  uint64_t file_ = 0;   // the number of the file that was read
  uint64_t begin_ = 0;  // of the first line that was not
};

}  // namespace tempera::train
