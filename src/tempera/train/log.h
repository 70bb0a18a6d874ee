#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tempera/train/checkpoint.h"

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

  void append(const Json& line);
  // Waits until all lines are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The lines up to the first that is torn.
std::vector<Json> read_log(const std::filesystem::path& path);

}  // namespace tempera::train
