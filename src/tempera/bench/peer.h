#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tempera::bench {

// Another program that measures itself: it does one piece of work for each line that it is sent,
// and answers with a JSON object on one line. So two programs can take turns.
class Peer {
 public:
  // Starts the program; `name` is for messages. Its standard error is ours.
  Peer(std::string name, std::vector<std::string> command);
  // Closes its input, which ends it, and waits.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }
  // Its next answer. Lines that begin otherwise than '{' are passed over. Throws Error where it
  // ends.
  nlohmann::json read();
  nlohmann::json ask(const std::string& line);

 private:
  std::string line();

  std::string name_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string buffer_;
};

}  // namespace tempera::bench
