#include "tempera/bench/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/bench/spawn.h"

namespace tempera::bench {
namespace {

using Clock = std::chrono::steady_clock;

// In which a server has to load its model.
constexpr std::chrono::seconds kStart{300};
// Without a byte of an answer.
constexpr time_t kSilence = 600;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

sockaddr_in local_address(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval silence{.tv_sec = kSilence, .tv_usec = 0};
    const sockaddr_in address = local_address(port);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return;
    const int failure = errno;
    ::close(socket_);
    throw Error(concat("nothing answers at 127.0.0.1:", port, ": ", std::strerror(failure)));
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      TEMPERA_CHECK(count > 0, "the server took no more of a request: ", std::strerror(errno));
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  // False: the other side has ended.
  bool read(std::string& text) {
    std::array<char, 16384> bytes{};
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
    TEMPERA_CHECK(count >= 0, "the server broke off its answer: ", std::strerror(errno));
    text.append(bytes.data(), static_cast<size_t>(count));
    return count > 0;
  }

 private:
  int socket_;
};

// HTTP/1.0: the end of the connection is that of the answer, which then has no chunks.
HttpAnswer answer_to(uint16_t port, const std::string& request) {
  constexpr std::string_view kHeadEnd = "\r\n\r\n";
  const auto start = Clock::now();
  Connection connection(port);
  connection.write(request);
  HttpAnswer answer;
  std::string text;
  size_t body = std::string::npos;
  while (connection.read(text)) {
    if (body == std::string::npos && text.find(kHeadEnd) != std::string::npos)
      body = text.find(kHeadEnd) + kHeadEnd.size();
    if (answer.first_seconds == 0 && body < text.size())
      answer.first_seconds = seconds_since(start);
  }
  answer.seconds = seconds_since(start);
  constexpr size_t kStatus = std::string_view("HTTP/1.x ").size();
  TEMPERA_CHECK(
      body != std::string::npos && text.starts_with("HTTP/1.") &&
          std::from_chars(text.data() + kStatus, text.data() + kStatus + 3, answer.status).ec ==
              std::errc(),
      "127.0.0.1:", port, " gave no answer of HTTP");
  answer.body = text.substr(body);
  return answer;
}

}  // namespace

uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = local_address(0);
  socklen_t size = sizeof(address);
  const bool found = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  TEMPERA_CHECK(found, "there is no free port at 127.0.0.1: ", std::strerror(errno));
  return ntohs(address.sin_port);
}

HttpAnswer http_get(uint16_t port, const std::string& path) {
  return answer_to(port, concat("GET ", path, " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"));
}

HttpAnswer http_post(uint16_t port, const std::string& path, const std::string& json) {
  return answer_to(port, concat("POST ", path,
                                " HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                                "Content-Length: ",
                                json.size(), "\r\n\r\n", json));
}

ServerProcess::ServerProcess(std::string name, std::vector<std::string> command, uint16_t port)
    : name_(std::move(name)), port_(port) {
  process_ = spawn(name_, command, [](posix_spawn_file_actions_t& actions) {
    for (const int output : {STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0);
  });
  try {
    wait_until_ready(command);
  } catch (...) {
    if (process_ > 0) ::kill(process_, SIGKILL);
    if (process_ > 0) ::waitpid(process_, nullptr, 0);
    throw;
  }
}

ServerProcess::~ServerProcess() {
  if (process_ <= 0) return;
  ::kill(process_, SIGTERM);
  ::waitpid(process_, nullptr, 0);
}

bool ServerProcess::has_ended() {
  if (::waitpid(process_, nullptr, WNOHANG) != process_) return false;
  process_ = -1;
  return true;
}

void ServerProcess::wait_until_ready(const std::vector<std::string>& command) {
  for (const auto end = Clock::now() + kStart; Clock::now() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (has_ended()) {
      std::string words;
      for (const auto& word : command) words += " " + word;
      throw Error(concat(name_, " ended before it listened; its command tells why:", words));
    }
    try {
      if (http_get(port_, "/v1/models").status == 200) return;
    } catch (const Error&) {  // it does not listen yet
    }
  }
  throw Error(concat(name_, " does not listen after ", kStart.count(), " seconds"));
}

int64_t ServerProcess::own_bytes() const {
  constexpr uint64_t kMost = 1U << 20;
  const std::string text = read_file(concat("/proc/", process_, "/status"), kMost);
  constexpr std::string_view kField = "RssAnon:";
  const size_t at = text.find(kField);
  TEMPERA_CHECK(at != std::string::npos, "/proc does not tell the memory of ", name_);
  return int64_t{1024} * std::stoll(text.substr(at + kField.size()));
}

}  // namespace tempera::bench
