#include "tempera/dist/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/dist/c10d.h"
#include "tempera/dist/watch.h"

extern char** environ;

namespace tempera::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLoopback = "127.0.0.1";
constexpr uint64_t kMostArguments = 16U << 20;
// From a failure to the order to stop, and from that to the end by force: a checkpoint is written
// meanwhile.
constexpr Seconds kBeforeTerm{20}, kBeforeKill{30};

std::vector<std::string> own_arguments() {
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  TEMPERA_CHECK(file >= 0, "cannot read /proc/self/cmdline: ", std::strerror(errno));
  std::string all(kMostArguments, '\0');
  size_t filled = 0;
  for (ssize_t got = 1; got > 0 && filled < all.size(); filled += static_cast<size_t>(got))
    got = std::max<ssize_t>(::read(file, all.data() + filled, all.size() - filled), 0);
  ::close(file);
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < filled;) {
    arguments.emplace_back(all.c_str() + begin);
    begin += arguments.back().size() + 1;
  }
  return arguments;
}

std::vector<std::string> environment_of(int64_t rank, int64_t ranks, uint16_t port) {
  std::vector<std::string> list;
  for (char** entry = environ; *entry; ++entry) list.emplace_back(*entry);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(list, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    list.push_back(name + "=" + value);
  };
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(rank));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, std::to_string(ranks));
  set("MASTER_ADDR", kLoopback);
  set("MASTER_PORT", std::to_string(port));
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  if (!std::getenv("OMP_NUM_THREADS")) {
    const int64_t cores = std::thread::hardware_concurrency();
    set("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, cores / ranks)));
  }
  return list;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

pid_t start(std::vector<std::string> arguments, std::vector<std::string> environment) {
  // Everything is made before the fork: other threads exist, and the child may only call the
  // system.
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  TEMPERA_CHECK(child >= 0, "cannot start a rank: ", std::strerror(errno));
  if (child > 0) return child;
  // A key that interrupts is for the parent, which passes it on: two signals would end a rank
  // before it has saved.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (::getppid() != parent) ::_exit(1);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

class Ranks {
 public:
  Ranks(int64_t ranks, Store& store, uint16_t port) : store_(store) {
    const auto arguments = own_arguments();
    for (int64_t rank = 0; rank < ranks; ++rank)
      running_.push_back({start(arguments, environment_of(rank, ranks, port)), rank});
  }

  int wait() {
    while (!running_.empty()) {
      if (const int number = InterruptGuard::signal(); number != 0 && !passed_on_) {
        passed_on_ = true;
        signal_all(number);
      }
      reap();
      stop_late_ones();
      std::this_thread::sleep_for(Seconds(0.01));
    }
    return code_;
  }

 private:
  struct Running {
    pid_t process;
    int64_t rank;
  };

  void signal_all(int number) {
    for (const Running& one : running_) ::kill(one.process, number);
  }

  void reap() {
    for (size_t i = 0; i < running_.size();) {
      int status = 0;
      if (::waitpid(running_[i].process, &status, WNOHANG) != running_[i].process) {
        ++i;
        continue;
      }
      const int64_t rank = running_[i].rank;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      note(rank, status);
    }
  }

  void note(int64_t rank, int status) {
    const bool killed = WIFSIGNALED(status);
    const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || failed_) return;
    failed_ = Clock::now();
    code_ = code;
    if (!killed) return;
    const std::string message = concat("rank ", rank, " was killed by signal ", WTERMSIG(status),
                                       " (", ::strsignal(WTERMSIG(status)), ")");
    std::cerr << "tempera: " << message << "; the other ranks stop\n";
    note_failure(store_, {kLauncher, message});
  }

  void stop_late_ones() {
    if (!failed_) return;
    const Seconds since = Clock::now() - *failed_;
    if (since > kBeforeTerm && !passed_on_) {
      passed_on_ = true;
      signal_all(SIGTERM);
    }
    if (since > kBeforeTerm + kBeforeKill) signal_all(SIGKILL);
  }

  Store& store_;
  std::vector<Running> running_;
  std::optional<Clock::time_point> failed_;
  bool passed_on_ = false;
  int code_ = 0;
};

}  // namespace

void run_ranks(int64_t ranks) {
  const InterruptGuard guard;
  Store store({.address = kLoopback, .port = 0, .host = true, .prefix = kMeetingPrefix},
              Seconds(60));
  const auto attempt = store.under(attempt_name(0));
  if (const int code = Ranks(ranks, *attempt, store.port()).wait(); code != 0)
    throw RanksFailed(code);
}

}  // namespace tempera::dist
