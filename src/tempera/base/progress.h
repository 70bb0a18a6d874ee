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
  // For a job of unequal or unfinished units, whose share done says more than a number of them.
  // `counted` stands in the line: "5/12 models".
  void start_at_share(double share, std::string_view counted);
  void update_share(double share, std::string_view counted, int64_t amount, std::string_view extra);
  // A line of its own above the progress.
  void note(std::string_view text);
  // Shows the last state and ends the line. The destructor only ends the line.
  void finish();

 private:
  using Time = std::chrono::steady_clock::time_point;
  double share_of(int64_t done) const;
  std::string counted(int64_t done) const;
  void show(Time now);
  std::string line(Time now) const;

  std::string title_;
  int64_t total_;
  std::string unit_;
  ProgressOutput output_;
  Time start_;
  Time shown_;
  int64_t first_ = 0;
  double first_share_ = 0;
  double share_ = 0;
  std::string counted_;
  int64_t amount_ = 0;
  std::string extra_;
  size_t width_ = 0;  // of the line on the terminal
  bool stale_ = true;
  bool finished_ = false;
};

// "0:42", "12:05", "3:01:00"
std::string duration_text(double seconds);
// "about 45 s", "about 10 min", "about 3.5 h": a time that is not known well
std::string about_text(double seconds);
// "12,345"
std::string count_text(int64_t count);
// "950", "3.1k", "2.50M": three digits, for rates
std::string quantity_text(double value);

}  // namespace tempera
