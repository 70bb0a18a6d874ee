#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tempera/base/interrupt.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/train/run_view.h"

namespace tempera::cli {
namespace {

using train::RunState;

struct WatchSettings {
  std::string run;
  bool once = false;
  double every = 2;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("run", run, "the folder of a run: the --out of train, finetune, calibrate");
    options.section(config::Section::kOutput);
    options.option("once", once, "print the current state and exit");
    options.option("every", every, config::above_to(0, 3600), "seconds between updates");
    config::json_option(options, json);
  }
};

struct Size {
  size_t columns = 80, rows = 24;
};

Size terminal_size() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

// Over what was shown before, as much as the terminal has room for.
void redraw(const std::string& text, const Size& size) {
  std::string out = "\x1b[H";
  size_t begin = 0;
  for (size_t line = 0; line + 1 < size.rows && begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    out += text.substr(begin, std::min(end - begin, size.columns)) + "\x1b[K\n";
    begin = end + 1;
  }
  std::cout << out << "\x1b[J" << std::flush;
}

// False after a signal.
bool wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (InterruptGuard::signal() == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return InterruptGuard::signal() == 0;
}

void follow_on_terminal(train::RunView& view, double every) {
  std::cout << "\x1b[2J";
  do {
    view.update();
    const Size size = terminal_size();
    redraw(view.text(size.columns), size);
  } while (view.state() == RunState::kWorking && wait(every));
  // All of it, and behind it the next prompt.
  std::cout << "\x1b[H\x1b[2J" << view.text(terminal_size().columns) << std::flush;
}

// A line for each of the log's, without what was there before.
void follow_in_lines(train::RunView& view, double every) {
  view.update();
  if (view.state() == RunState::kWorking) std::cout << view.title() << std::endl;
  while (view.state() == RunState::kWorking && wait(every)) {
    for (const auto& line : view.update()) std::cout << view.line_text(line) << "\n";
    std::cout << std::flush;
  }
  std::cout << view.text(Size{}.columns);
}

void run(const WatchSettings& settings) {
  train::RunView view(settings.run);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  if (settings.once || settings.json) {
    view.update();
    if (settings.json)
      std::cout << view.json().dump(2, ' ', false, train::Json::error_handler_t::replace) << "\n";
    else
      std::cout << view.text(terminal ? terminal_size().columns : Size{}.columns);
    return;
  }
  const InterruptGuard guard;
  terminal ? follow_on_terminal(view, settings.every) : follow_in_lines(view, settings.every);
}

}  // namespace

Verb watch_verb() {
  return make_verb<WatchSettings>(
      "watch", "follows a training in the terminal",
      {{"tempera watch run", "loss, speed, time left and watched numbers, until the run ends"},
       {"tempera watch run --once", "how far it is now"},
       {"tempera watch run --json", "the same as one document"}},
      run);
}

}  // namespace tempera::cli
