#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The files that TensorBoard reads: records, each with its length and checksums, that hold an Event
// as Protocol Buffers encode it.
namespace tempera::io {

// How numbers are spread: `counts[i]` of them lie above limits[i - 1], up to limits[i]; the first
// ones from `least` on.
struct EventHistogram {
  double least = 0, largest = 0;
  double sum = 0, squares = 0;
  std::vector<double> limits = {}, counts = {};
};

struct EventValue {
  std::string tag;  // TensorBoard groups charts by what stands before the first slash
  std::variant<float, EventHistogram> value;
};

// One event, encoded.
std::string encode_event(double wall_time, int64_t step, std::span<const EventValue> values);
// The first event of every file.
std::string encode_version(double wall_time);
// Tells a reader that this step and later ones begin anew: what it knows of them does not count.
std::string encode_restart(double wall_time, int64_t step);
// The event as it stands in a file.
std::string event_record(std::string_view event);

// A new file of events. Each is written at once, so that an ended process loses none.
class EventFile {
 public:
  // Throws Error where something has that name.
  explicit EventFile(std::filesystem::path path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void append(std::string_view event);
  // Waits until all events are on the disk.
  void sync();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace tempera::io
