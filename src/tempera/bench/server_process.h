#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

// Servers of other processes, and what a client asks of them.
namespace tempera::bench {

// A port of this machine that nobody listens on now.
uint16_t free_port();

// The answer to one request.
struct HttpAnswer {
  int status = 0;
  std::string body = {};
  double first_seconds = 0;  // until the first byte of the body
  double seconds = 0;        // until its end
};

// One connection to 127.0.0.1, which ends with the answer. Throws Error where there is none.
HttpAnswer http_get(uint16_t port, const std::string& path);
HttpAnswer http_post(uint16_t port, const std::string& path, const std::string& json);

// A server on this machine, which ends with the object.
class ServerProcess {
 public:
  // Waits until it answers GET /v1/models. `name` is for messages.
  ServerProcess(std::string name, std::vector<std::string> command, uint16_t port);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& name() const { return name_; }
  uint16_t port() const { return port_; }
  // Memory that belongs to it alone; files that it has mapped do not count.
  int64_t own_bytes() const;

 private:
  bool has_ended();
  void wait_until_ready(const std::vector<std::string>& command);

  std::string name_;
  uint16_t port_;
  pid_t process_ = -1;
};

}  // namespace tempera::bench
