#include "tempera/study/scaling/workers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::study::scaling {
namespace {

// A copy holds everything that this process has open: locks, and the sockets of other workers,
// which would then not notice that this process is gone.
void close_all_but(int kept) {
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int descriptor : open)
    if (descriptor > STDERR_FILENO && descriptor != kept) ::close(descriptor);
}

// Nothing to read, and whatever is printed goes beside the results.
void separate_streams() {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

[[noreturn]] void become_worker(int socket, pid_t parent, const Workers::Serve& serve) {
  int code = 1;
  try {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it ended before that
    ::setpgid(0, 0);
    separate_streams();
    close_all_but(socket);
    LineSocket line(socket);
    serve(line);
    code = 0;
  } catch (const std::exception& error) {
    std::cerr << "tempera: a worker failed: " << error.what() << std::endl;
  }
  // Not through the destructors of what is the parent's.
  ::_exit(code);
}

}  // namespace

LineSocket::LineSocket(LineSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::move(other.buffer_)) {}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

LineSocket::~LineSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool LineSocket::send(std::string_view line) const {
  const std::string text = std::string(line) + "\n";
  for (std::string_view left = text; !left.empty();) {
    const ssize_t sent = ::send(descriptor_, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    left.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool LineSocket::take_line(std::string& line) {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) return false;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return true;
}

bool LineSocket::receive(std::string& line) {
  while (!take_line(line)) {
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) return false;  // a signal: it is asked to stop
    if (count <= 0) return false;
    buffer_.append(bytes.data(), static_cast<size_t>(count));
  }
  return true;
}

bool LineSocket::receive_ready(std::vector<std::string>& lines) {
  bool open = true;
  while (true) {
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    open = count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    if (count <= 0) break;
    buffer_.append(bytes.data(), static_cast<size_t>(count));
  }
  for (std::string line; take_line(line);) lines.push_back(line);
  return open;
}

Workers::Workers(size_t count, Serve serve) : serve_(std::move(serve)) { grow(count); }

void Workers::grow(size_t count) {
  while (processes_.size() < count) processes_.push_back(start());
}

Workers::~Workers() {
  for (Process& process : processes_) {
    if (process.id < 0) continue;
    ::kill(process.id, SIGKILL);
    reap(process);
  }
}

Workers::Process Workers::start() {
  int ends[2];
  TEMPERA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
                "cannot make a connection to a worker: ", std::strerror(errno));
  std::cout.flush();
  const pid_t parent = ::getpid();
  const pid_t id = ::fork();
  if (id == 0) become_worker(ends[1], parent, serve_);
  ::close(ends[1]);
  Process process{.id = id, .socket = LineSocket(ends[0])};
  TEMPERA_CHECK(id > 0, "cannot start a worker: ", std::strerror(errno));
  return process;
}

void Workers::send(size_t worker, std::string_view line) {
  // Where it is gone, wait() tells.
  processes_[worker].socket.send(line);
}

std::vector<Workers::News> Workers::wait(double seconds) {
  std::vector<pollfd> watched;
  for (const Process& process : processes_)
    watched.push_back({process.id < 0 ? -1 : process.socket.descriptor(), POLLIN, 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(1000 * seconds));
  std::vector<News> all;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (watched[i].fd < 0 || watched[i].revents == 0) continue;
    News news{.worker = i, .lines = {}, .how = {}};
    if (!processes_[i].socket.receive_ready(news.lines)) {
      news.ended = true;
      news.how = reap(processes_[i]);
    }
    all.push_back(std::move(news));
  }
  return all;
}

std::string Workers::reap(Process& process) {
  int status = 0;
  while (::waitpid(process.id, &status, 0) < 0 && errno == EINTR) {
  }
  process.id = -1;
  return WIFSIGNALED(status) ? concat("by signal ", WTERMSIG(status))
                             : concat("with code ", WEXITSTATUS(status));
}

void Workers::restart(size_t worker) { processes_[worker] = start(); }

void Workers::ask_to_stop() {
  for (const Process& process : processes_)
    if (process.id > 0) ::kill(process.id, SIGTERM);
}

}  // namespace tempera::study::scaling
