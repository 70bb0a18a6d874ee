#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tempera/http/tls.h"

namespace tempera::http {

using Time = std::chrono::steady_clock::time_point;

Time seconds_from_now(double seconds);

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }
  void close();

 private:
  int release();
  int number_;
};

// A word to all threads that wait for sockets: once said, it stays said.
class Notice {
 public:
  Notice();
  void give();
  bool given() const;
  // Readable by poll() once the notice is given.
  int descriptor() const { return read_.number(); }

 private:
  Descriptor read_, write_;
};

enum class Wait { kReady, kTimeout, kNotice };

// A connection: reads and writes that end in time.
class Socket {
 public:
  explicit Socket(Descriptor descriptor);

  // From now on all bytes are encrypted. False: the other side does not agree until then.
  bool encrypt(const TlsContext& context, Time until);

  // Waits for bytes, for the notice where one is given, or until then.
  Wait wait_readable(Time until, const Notice* notice = nullptr) const;
  // Adds what is there to the text, at most 64 KiB; false: the other side has ended.
  bool read_some(std::string& text);
  // False where the other side is gone or has not taken the bytes until then.
  bool write_all(std::string_view bytes, Time until);
  // The other side has closed, or at least will send no more.
  bool is_gone() const;
  // Ends the connection so that the other side can still read what was written.
  void linger(double seconds);
  // Ends all waiting reads and writes, from any thread.
  void shut_down() const;

 private:
  bool read_encrypted(std::string& text);
  bool wait_for(TlsStep step, Time until) const;

  Descriptor descriptor_;
  std::unique_ptr<TlsSession> tls_;
};

// Listens on an address, as in "127.0.0.1" or "::1"; port 0: any free one.
class Listener {
 public:
  Listener(const std::string& address, uint16_t port);
  uint16_t port() const;
  Wait wait(const Notice& notice) const;
  // Takes no more connections; those that wait for accept() are turned away.
  void close() { descriptor_.close(); }
  // The next connection; of an invalid descriptor where it went away again.
  Descriptor accept();

 private:
  Descriptor descriptor_;
};

}  // namespace tempera::http
