#pragma once

#include "tempera/base/error.h"

namespace tempera {

// The work stopped because of a signal, with everything saved; the message says how to continue.
// The program exits with 128 + signal.
class Interrupted : public Error {
 public:
  Interrupted(int signal, const std::string& message) : Error(message), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

// While it lives, the first SIGINT or SIGTERM is only noted, so that the work can finish its step
// and save; a second one ends the process as usual. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that arrived, or 0.
  static int signal();
};

// Throws Interrupted with the message if a signal has arrived.
void stop_if_interrupted(const std::string& message);

}  // namespace tempera
