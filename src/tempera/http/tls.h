#pragma once

#include <cstddef>
#include <memory>
#include <string>

// Encryption of connections by OpenSSL, where the build has it.
namespace tempera::http {

// What became of an attempt that does not wait.
enum class TlsStep { kDone, kWantsRead, kWantsWrite, kEnded };

// The server's side of one connection, on a descriptor that does not block. For one thread, from
// which a connection that broke takes no signal.
class TlsSession {
 public:
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  ~TlsSession();

  TlsStep shake_hands();
  // `done`: how many bytes were read or written.
  TlsStep read(char* to, size_t size, size_t& done);
  TlsStep write(const char* from, size_t size, size_t& done);
  // Bytes that can be read at once, without any more from the other side.
  bool has_more() const;
  // Tells the other side that no more is written; once, without waiting.
  void say_end();

 private:
  std::unique_ptr<State> state_;
};

// A server's certificate, with those between it and its authority behind it, and its key: files in
// PEM. TLS 1.2 and 1.3.
class TlsContext {
 public:
  // Throws Error where the files cannot be used, or in a build without OpenSSL.
  TlsContext(const std::string& certificate, const std::string& key);
  ~TlsContext();

  std::unique_ptr<TlsSession> session(int descriptor) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tempera::http
