#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tempera/train/log.h"

// A run as its folder shows it to another process, while it trains or afterwards.
namespace tempera::train {

enum class RunState {
  kWorking,   // a process is working in the folder
  kFinished,  // the budget is used up
  kStopped    // nobody works there, and the budget is not used up
};

class RunView {
 public:
  // Throws Error where the folder is not that of a run which logs its steps.
  explicit RunView(std::filesystem::path folder);

  // Reads what was logged since the last time, and gives those lines.
  std::vector<Json> update();

  RunState state() const { return state_; }
  Json json() const;
  // "train, running  FOLDER"
  std::string title() const;
  // With a chart that is as wide; no control characters.
  std::string text(size_t columns) const;
  // What a line of the log says, in one line: "step 420 of 1,000  loss 2.3123  ...".
  std::string line_text(const Json& line) const;

 private:
  struct Point {
    int64_t step = 0;
    double loss = 0;
  };
  // How far the run was.
  struct Mark {
    double progress = 0, tokens = 0, seconds = 0;
  };

  void add(const Json& line);
  void forget();
  std::optional<double> tokens_per_second() const;
  std::optional<double> seconds_left() const;
  std::optional<double> watch_share() const;
  std::vector<std::string> head_lines() const;
  std::vector<std::string> chart_lines(size_t columns) const;
  std::string watched_text() const;

  std::filesystem::path folder_;
  std::string verb_;
  LogReader log_;
  RunState state_ = RunState::kStopped;
  Json step_, validation_, watched_;  // the last line of each kind; null: none yet
  std::vector<Point> losses_, validations_;
  std::optional<Point> best_;  // of the validations
  std::vector<Mark> marks_;
  double watch_seconds_ = 0;
};

}  // namespace tempera::train
