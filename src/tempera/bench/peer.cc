#include "tempera/bench/peer.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/bench/spawn.h"
#include "tempera/io/json.h"

namespace tempera::bench {

Peer::Peer(std::string name, std::vector<std::string> command) : name_(std::move(name)) {
  // A socket and no pipes: writing to a program that has ended is then an error and no signal.
  std::array<int, 2> ends{};
  TEMPERA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
                "cannot make a socket for ", name_, ": ", std::strerror(errno));
  socket_ = ends[0];
  try {
    process_ = spawn(name_, std::move(command), [&](posix_spawn_file_actions_t& actions) {
      ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
      ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    });
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
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
