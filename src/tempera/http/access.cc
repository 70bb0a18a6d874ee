#include "tempera/http/access.h"

#include <algorithm>

namespace tempera::http {
namespace {

// "name:80" and "[::1]:80" without the port.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower_case(host.substr(0, host.find(']') + 1));
  return lower_case(host.substr(0, host.find(':')));
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::ranges::find(list, item) != list.end();
}

// The headers that a page wants to send, where they are a list of names: clients have headers of
// their own, which say nothing to this server.
std::string wanted_headers(const Request& request) {
  const std::string* wanted = request.header("access-control-request-headers");
  const auto is_listed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~, ").find(c) != std::string_view::npos;
  };
  if (wanted && std::ranges::all_of(*wanted, is_listed)) return *wanted;
  return "Authorization, Content-Type";
}

// Whether the page came from this server.
bool is_own(const std::string& origin, const std::string& host) {
  return origin == "http://" + host || origin == "https://" + host;
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Fields check_access(const Request& request, const Access& access, bool loopback) {
  const std::string* host = request.header("host");
  auto hosts = access.hosts;
  if (hosts.empty() && loopback) hosts = {"localhost", "127.0.0.1", "[::1]"};
  if (host && !hosts.empty() && !contains(hosts, host_name(*host)))
    throw Refusal(421, "this server is not called \"" + host_name(*host) + "\"");
  const std::string* origin = request.header("origin");
  if (!origin) return {};
  const bool any = contains(access.origins, "*");
  if (!any && !contains(access.origins, *origin)) {
    if (host && is_own(*origin, *host)) return {};
    throw Refusal(403, "pages of \"" + *origin + "\" may not use this server");
  }
  return {{"Access-Control-Allow-Origin", any ? "*" : *origin},
          {"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"},
          {"Access-Control-Allow-Headers", wanted_headers(request)},
          {"Vary", "Origin"}};
}

}  // namespace tempera::http
