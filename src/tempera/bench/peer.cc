#include "tempera/bench/peer.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/io/json.h"

extern char** environ;

namespace tempera::bench {

Peer::Peer(std::string name, std::vector<std::string> command) : name_(std::move(name)) {
  // A socket and no pipes: writing to a program that has ended is then an error and no signal.
  std::array<int, 2> ends{};
  TEMPERA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
                "cannot make a socket for ", name_, ": ", std::strerror(errno));
  socket_ = ends[0];
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int failure =
      ::posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failure == 0) return;
  process_ = -1;
  ::close(socket_);
  throw Error(concat("cannot start ", command[0], " for ", name_, ": ", std::strerror(failure)));
}

Peer::~Peer() {
  ::close(socket_);
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
}

std::string Peer::line() {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string found = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return found;
    }
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(socket_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    TEMPERA_CHECK(count > 0, name_, " ended before it answered; its own message stands above");
    buffer_.append(bytes.data(), static_cast<size_t>(count));
  }
}

nlohmann::json Peer::read() {
  while (true) {
    const std::string text = line();
    if (!text.starts_with('{')) continue;
    return io::parse_json(text, "the answer of " + name_);
  }
}

nlohmann::json Peer::ask(const std::string& line) {
  const std::string text = line + "\n";
  TEMPERA_CHECK(
      ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()),
      name_, " ended before it was asked; its own message stands above");
  return read();
}

}  // namespace tempera::bench
