#pragma once

#include <string>
#include <vector>

#include "tempera/http/server.h"

namespace tempera::http {

// Which handler answers which method and path.
class Router {
 public:
  // A path, or the beginning of one with a star behind it: "/files/*".
  void add(std::string method, std::string path, Handler handler);

  // A Refusal where nothing is there (404) or the method is another (405). HEAD is GET whose body
  // stays here, and OPTIONS says which methods there are.
  void operator()(const Request& request, Reply& reply) const;

 private:
  struct Route {
    std::string method, path;
    Handler handler;
  };
  std::vector<Route> routes_;
};

}  // namespace tempera::http
