#include "tempera/bench/profile.h"

#include <chrono>
#include <vector>

#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The operators that are running, innermost last. One a thread, because the callbacks have no
// argument of ours.
struct Recording {
  struct Open {
    std::string name;
    Clock::time_point start;
    double inside = 0;  // seconds in the operators it called
  };
  std::vector<Open> open;
  std::map<std::string, double> seconds;

  void begin(std::string name) { open.push_back({std::move(name), Clock::now()}); }
  void end() {
    const Open done = std::move(open.back());
    open.pop_back();
    const double taken = std::chrono::duration<double>(Clock::now() - done.start).count();
    seconds[done.name] += taken - done.inside;
    if (!open.empty()) open.back().inside += taken;
  }
};
thread_local Recording* recording = nullptr;

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (recording) recording->begin(function.name());
  return nullptr;
}

void on_end(const at::RecordFunction&, at::ObserverContext*) {
  if (recording) recording->end();
}

}  // namespace

std::map<std::string, double> operator_seconds(const std::function<void()>& work) {
  Recording own;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_start, on_end)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  recording = &own;
  const auto finish = [&] {
    recording = nullptr;
    at::removeCallback(handle);
  };
  try {
    own.begin("");
    work();
    own.end();
  } catch (...) {
    finish();
    throw;
  }
  finish();
  return own.seconds;
}

}  // namespace tempera::bench
