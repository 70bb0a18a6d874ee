#include "tempera/base/interrupt.h"

#include <array>
#include <csignal>

namespace tempera {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

volatile std::sig_atomic_t g_signal = 0;
bool g_guarded = false;
std::array<struct sigaction, kSignals.size()> g_previous;

extern "C" void note_signal(int signal) {
  g_signal = signal;
  for (const int other : kSignals) std::signal(other, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  TEMPERA_CHECK(!g_guarded, "two interrupt guards at a time");
  g_guarded = true;
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_previous[i]);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_previous[i], nullptr);
  g_guarded = false;
}

int InterruptGuard::signal() { return g_signal; }

void stop_if_interrupted(const std::string& message) {
  if (const int signal = InterruptGuard::signal()) throw Interrupted(signal, message);
}

}  // namespace tempera
