#include "tempera/http/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::http {
namespace {

constexpr int kWaitingConnections = 512;
constexpr size_t kMostRead = size_t{64} << 10;
constexpr size_t kMostUnread = size_t{64} << 20;  // of a body that is not wanted

int milliseconds_until(Time until) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

// poll() that starts again behind a signal; the number of descriptors that are ready.
template <size_t N>
int poll_until(std::array<pollfd, N>& wanted, size_t count, Time until) {
  while (true) {
    const int ready = ::poll(wanted.data(), count, milliseconds_until(until));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (ready == 0 && std::chrono::steady_clock::now() >= until) return 0;
  }
}

Wait wait_until_readable(int descriptor, Time until, const Notice* notice) {
  std::array<pollfd, 2> wanted = {pollfd{descriptor, POLLIN, 0},
                                  pollfd{notice ? notice->descriptor() : -1, POLLIN, 0}};
  if (poll_until(wanted, 2, until) == 0) return Wait::kTimeout;
  return wanted[1].revents != 0 && wanted[0].revents == 0 ? Wait::kNotice : Wait::kReady;
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Time seconds_from_now(double seconds) {
  using std::chrono::steady_clock;
  return steady_clock::now() +
         std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = other.release();
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

int Descriptor::release() { return std::exchange(number_, -1); }

Notice::Notice() {
  std::array<int, 2> ends;
  TEMPERA_CHECK(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0,
                "no pipe: ", std::strerror(errno));
  read_ = Descriptor(ends[0]);
  write_ = Descriptor(ends[1]);
}

// A byte that nobody takes out.
void Notice::give() {
  const char word = 1;
  [[maybe_unused]] const auto written = ::write(write_.number(), &word, 1);  // full: given already
}

bool Notice::given() const {
  pollfd wanted = {read_.number(), POLLIN, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

Socket::Socket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
  const int on = 1;  // small pieces of a stream go at once
  ::setsockopt(descriptor_.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool Socket::encrypt(const TlsContext& context, Time until) {
  const int flags = ::fcntl(descriptor_.number(), F_GETFL);
  ::fcntl(descriptor_.number(), F_SETFL, flags | O_NONBLOCK);
  tls_ = context.session(descriptor_.number());
  while (true) {
    const TlsStep step = tls_->shake_hands();
    if (step == TlsStep::kDone) return true;
    if (!wait_for(step, until)) return false;
  }
}

// Until a step that did not go can be tried again.
bool Socket::wait_for(TlsStep step, Time until) const {
  if (step == TlsStep::kEnded) return false;
  const short event = step == TlsStep::kWantsRead ? POLLIN : POLLOUT;
  std::array<pollfd, 1> wanted = {pollfd{descriptor_.number(), event, 0}};
  return poll_until(wanted, 1, until) > 0;
}

Wait Socket::wait_readable(Time until, const Notice* notice) const {
  if (tls_ && tls_->has_more()) return Wait::kReady;
  return wait_until_readable(descriptor_.number(), until, notice);
}

// A record that has come in part is nothing yet.
bool Socket::read_encrypted(std::string& text) {
  std::array<char, size_t{16} << 10> bytes;
  for (size_t all = 0; all < kMostRead;) {
    size_t size = 0;
    const TlsStep step = tls_->read(bytes.data(), bytes.size(), size);
    if (step == TlsStep::kEnded) return all > 0;
    if (step != TlsStep::kDone) return true;
    text.append(bytes.data(), size);
    all += size;
  }
  return true;
}

bool Socket::read_some(std::string& text) {
  if (tls_) return read_encrypted(text);
  std::array<char, kMostRead> bytes;
  const ssize_t size = ::recv(descriptor_.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0) return would_block(errno);
  text.append(bytes.data(), static_cast<size_t>(size));
  return size > 0;
}

bool Socket::write_all(std::string_view bytes, Time until) {
  while (tls_ && !bytes.empty()) {
    size_t size = 0;
    const TlsStep step = tls_->write(bytes.data(), bytes.size(), size);
    if (step == TlsStep::kDone)
      bytes.remove_prefix(size);
    else if (!wait_for(step, until))
      return false;
  }
  while (!bytes.empty()) {
    const ssize_t size =
        ::send(descriptor_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
      continue;
    }
    if (!would_block(errno)) return false;
    std::array<pollfd, 1> wanted = {pollfd{descriptor_.number(), POLLOUT, 0}};
    if (poll_until(wanted, 1, until) <= 0) return false;
  }
  return true;
}

bool Socket::is_gone() const {
  pollfd wanted = {descriptor_.number(), POLLRDHUP, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

void Socket::linger(double seconds) {
  if (tls_) tls_->say_end();
  ::shutdown(descriptor_.number(), SHUT_WR);
  // Closing with unread bytes would reset the connection and take the answer from the client.
  const Time until = seconds_from_now(seconds);
  std::string unread;
  for (size_t all = 0; all < kMostUnread && std::chrono::steady_clock::now() < until;
       all += unread.size()) {
    unread.clear();
    if (wait_readable(until) != Wait::kReady || !read_some(unread)) return;
  }
}

void Socket::shut_down() const { ::shutdown(descriptor_.number(), SHUT_RDWR); }

Listener::Listener(const std::string& address, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  TEMPERA_CHECK(::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) == 0,
                "host: \"", address,
                "\" given, the number of an address of this machine expected, such as 127.0.0.1");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  descriptor_ =
      Descriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(descriptor_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  TEMPERA_CHECK(::bind(descriptor_.number(), found->ai_addr, found->ai_addrlen) == 0 &&
                    ::listen(descriptor_.number(), kWaitingConnections) == 0,
                "cannot listen on ", address, " port ", port, ": ", std::strerror(errno),
                errno == EADDRINUSE ? "; choose another --port, or 0 for any free one" : "");
}

uint16_t Listener::port() const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ::getsockname(descriptor_.number(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port lies at the same place in both kinds of address.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Wait Listener::wait(const Notice& notice) const {
  std::array<pollfd, 2> wanted = {pollfd{notice.descriptor(), POLLIN, 0},
                                  pollfd{descriptor_.number(), POLLIN, 0}};
  poll_until(wanted, 2, seconds_from_now(1));
  if (wanted[0].revents != 0) return Wait::kNotice;
  return wanted[1].revents != 0 ? Wait::kReady : Wait::kTimeout;
}

Descriptor Listener::accept() {
  return Descriptor(::accept4(descriptor_.number(), nullptr, nullptr, SOCK_CLOEXEC));
}

}  // namespace tempera::http
