#pragma once

#include <string>
#include <vector>

#include "tempera/http/message.h"

namespace tempera::http {

// Which pages may use the server through a browser.
struct Access {
  // Other pages' origins, such as "https://example.org", or "*" for any.
  std::vector<std::string> origins = {};
  // The names under which the server is asked. Empty: of an address of this machine alone its
  // names, so that a foreign page cannot reach it by a name of its own; otherwise any.
  std::vector<std::string> hosts = {};
};

// The fields that a browser wants in the answer. Throws Refusal where the page may not ask.
Fields check_access(const Request& request, const Access& access, bool loopback);

bool is_loopback(const std::string& address);

}  // namespace tempera::http
