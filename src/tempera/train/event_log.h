#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tempera/io/event_file.h"
#include "tempera/train/checkpoint.h"

namespace tempera::train {

// The lines of a run's log as events in a folder that TensorBoard reads. Every process of the run
// writes a file of its own, which begins with all that the log has: so a run that goes on has each
// step once, wherever the one before it ended and whichever folder that wrote to.
class EventLog {
 public:
  // `run`: its id, by which its files are known; older ones give way to the new one. Throws Error
  // where the folder has events of another run.
  EventLog(const std::filesystem::path& folder, const std::string& run,
           const std::vector<Json>& lines);

  void append(const Json& line);
  // Waits until all events are on the disk.
  void sync() { file_->sync(); }

 private:
  void append(const Json& line, double wall_time);

  std::unique_ptr<io::EventFile> file_;
};

// What TensorBoard draws of a line; numbers that are not finite are left out.
std::vector<io::EventValue> event_values(const Json& line);

}  // namespace tempera::train
