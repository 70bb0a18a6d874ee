#pragma once

#include <chrono>
#include <string>
#include <vector>

// torch's header for Gloo includes Gloo's own, which the wheels of torch do not carry. This is what
// that header needs of them: names, and the functions that it calls or overrides.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

namespace transport {
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
class Device;
}  // namespace transport

}  // namespace gloo
