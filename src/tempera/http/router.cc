#include "tempera/http/router.h"

#include <utility>

namespace tempera::http {
namespace {

bool matches(const std::string& pattern, const std::string& path) {
  if (!pattern.ends_with('*')) return path == pattern;
  return path.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
}

}  // namespace

void Router::add(std::string method, std::string path, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

void Router::operator()(const Request& request, Reply& reply) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string methods;
  for (const Route& route : routes_) {
    if (request.path != "*" && !matches(route.path, request.path)) continue;
    if (route.method == method) return route.handler(request, reply);
    if (methods.find(route.method) == std::string::npos)
      methods += (methods.empty() ? "" : ", ") + route.method;
  }
  if (methods.empty()) throw Refusal(404, "there is nothing at " + request.path);
  if (method == "OPTIONS")
    return reply.send({.status = 204, .headers = {{"Allow", methods + ", OPTIONS"}}});
  throw Refusal(405, request.path + " takes " + methods + ", not " + request.method, {},
                {{"Allow", methods + ", OPTIONS"}});
}

}  // namespace tempera::http
