#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace tempera {

// Where progress goes and what time it is; tests replace both.
struct ProgressOutput {
  std::ostream* stream;  // null: nothing is shown
  bool terminal;         // rewrite one line; otherwise lines, a few seconds apart
  size_t columns;        // of the terminal; a longer line is cut
  std::function<std::chrono::steady_clock::time_point()> now;
};

// Standard error, which is a terminal or not.
ProgressOutput standard_progress();

// How far a job is: "train  42.0 %  420/1000  3.1k tokens/s  0:42 left  loss 2.31". For one thread.
class Progress {
 public:
  Progress(std::string_view title, int64_t total, std::string_view unit,
           ProgressOutput output = standard_progress());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Units of work below `done` were there before (a resumed job); the rate leaves them out.
  void start_at(int64_t done);
  // `amount` is what the rate counts, such as tokens; without it, `done` is counted.
  void update(int64_t done, std::string_view extra = {});
  void update(int64_t done, int64_t amount, std::string_view extra);
  // Shows the last state and ends the line. The destructor only ends the line.
  void finish();

 private:
  using Time = std::chrono::steady_clock::time_point;
  void show(Time now);
  std::string line(Time now) const;

  std::string title_;
  int64_t total_;
  std::string unit_;
  ProgressOutput output_;
  Time start_;
  Time shown_;
  int64_t first_ = 0;
  int64_t done_ = 0;
  int64_t amount_ = 0;
  std::string extra_;
  size_t width_ = 0;  // of the line on the terminal
  bool stale_ = true;
  bool finished_ = false;
};

// "0:42", "12:05", "3:01:00"
std::string duration_text(double seconds);
// "950", "3.1k", "2.50M": three digits, for rates
std::string quantity_text(double value);

}  // namespace tempera
