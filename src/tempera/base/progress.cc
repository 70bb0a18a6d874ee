#include "tempera/base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

namespace tempera {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr Seconds kTerminalPause{0.1};
constexpr Seconds kLinePause{5.0};

std::string formatted(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, value);
  return buffer;
}

}  // namespace

std::string duration_text(double seconds) {
  // A rate near zero gives a time that no clock shows.
  if (!(seconds < 1e8)) return "years";
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  const int64_t hours = whole / 3600;
  char buffer[48];
  if (hours > 0)
    std::snprintf(buffer, sizeof(buffer), "%lld:%02lld:%02lld", static_cast<long long>(hours),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  else
    std::snprintf(buffer, sizeof(buffer), "%lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  return buffer;
}

std::string about_text(double seconds) {
  if (!(seconds < 1e8)) return "years";
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  const auto rounded = [](double value) {
    return formatted(value < 9.95 ? "%.1f" : "%.0f", value);
  };
  if (seconds < 99.5) return "about " + formatted("%.0f", std::max(1.0, seconds)) + " s";
  if (seconds < 99.5 * kMinute) return "about " + formatted("%.0f", seconds / kMinute) + " min";
  if (seconds < 2 * kDay) return "about " + rounded(seconds / kHour) + " h";
  return "about " + rounded(seconds / kDay) + " days";
}

std::string count_text(int64_t count) {
  std::string text = std::to_string(count);
  const std::ptrdiff_t digits = count < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > digits; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string quantity_text(double value) {
  static constexpr const char* kSuffixes[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  while (std::abs(value) >= 999.5 && step + 1 < std::size(kSuffixes)) {
    value /= 1000;
    ++step;
  }
  const double size = std::abs(value);
  const char* format = size >= 99.95 ? "%.0f" : size >= 9.995 ? "%.1f" : "%.2f";
  return formatted(format, value) + kSuffixes[step];
}

ProgressOutput standard_progress() {
  const char* terminal = std::getenv("TERM");
  const bool dumb = !terminal || std::string_view(terminal) == "dumb";
  struct winsize window = {};
  const bool sized = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return {&std::cerr, ::isatty(STDERR_FILENO) == 1 && !dumb, sized ? window.ws_col : 80U,
          [] { return std::chrono::steady_clock::now(); }};
}

Progress::Progress(std::string_view title, int64_t total, std::string_view unit,
                   ProgressOutput output)
    : title_(title), total_(total), unit_(unit), output_(std::move(output)) {
  counted_ = counted(0);
  start_ = output_.now();
  shown_ = start_;
}

Progress::~Progress() {
  if (!finished_ && width_ > 0) *output_.stream << "\n" << std::flush;
}

double Progress::share_of(int64_t done) const {
  return total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0;
}

std::string Progress::counted(int64_t done) const {
  return std::to_string(done) + (total_ > 0 ? "/" + std::to_string(total_) : "");
}

void Progress::start_at(int64_t done) {
  first_ = done;
  start_at_share(share_of(done), counted(done));
}

void Progress::start_at_share(double share, std::string_view counted) {
  first_share_ = share;
  share_ = share;
  counted_ = counted;
}

void Progress::update(int64_t done, std::string_view extra) { update(done, done - first_, extra); }

void Progress::update(int64_t done, int64_t amount, std::string_view extra) {
  update_share(share_of(done), counted(done), amount, extra);
}

void Progress::update_share(double share, std::string_view counted, int64_t amount,
                            std::string_view extra) {
  share_ = share;
  counted_ = counted;
  amount_ = amount;
  extra_ = extra;
  stale_ = true;
  if (!output_.stream) return;
  const Time now = output_.now();
  if (now - shown_ >= (output_.terminal ? kTerminalPause : kLinePause)) show(now);
}

void Progress::note(std::string_view text) {
  if (!output_.stream) return;
  if (output_.terminal && width_ > 0) *output_.stream << "\r" << std::string(width_, ' ') << "\r";
  *output_.stream << text << "\n" << std::flush;
  width_ = 0;
}

void Progress::finish() {
  if (finished_ || !output_.stream) return;
  if (stale_) show(output_.now());
  if (output_.terminal) *output_.stream << "\n" << std::flush;
  finished_ = true;
}

void Progress::show(Time now) {
  std::string text = line(now);
  if (output_.terminal) {
    // One column stays free: a full last one makes some terminals begin a new line.
    if (output_.columns > 1 && text.size() >= output_.columns) text.resize(output_.columns - 1);
    // Blanks wipe out what a longer line left behind.
    const size_t wipe = width_ > text.size() ? width_ - text.size() : 0;
    *output_.stream << "\r" << text << std::string(wipe, ' ') << std::flush;
    width_ = text.size();
  } else {
    *output_.stream << text << "\n" << std::flush;
  }
  shown_ = now;
  stale_ = false;
}

std::string Progress::line(Time now) const {
  const double seconds = Seconds(now - start_).count();
  std::string text = title_;
  if (total_ > 0) text += formatted("  %5.1f %%", 100 * share_);
  if (!counted_.empty()) text += "  " + counted_;
  if (seconds > 0 && amount_ > 0)
    text += "  " + quantity_text(static_cast<double>(amount_) / seconds) + " " + unit_ + "/s";
  if (total_ > 0 && share_ >= 1)
    text += "  " + duration_text(seconds);
  else if (total_ > 0 && share_ > first_share_)
    text += "  " + duration_text(seconds * (1 - share_) / (share_ - first_share_)) + " left";
  if (!extra_.empty()) text += "  " + extra_;
  return text;
}

}  // namespace tempera
