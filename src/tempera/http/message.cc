#include "tempera/http/message.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tempera::http {
namespace {

const std::string* value_of(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(
      fields, name, [](const auto& field) { return std::string_view(field.first); });
  return found == fields.end() ? nullptr : &found->second;
}

std::string_view error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

const std::string* Request::header(std::string_view name) const { return value_of(headers, name); }

const std::string* Request::query_value(std::string_view name) const {
  return value_of(query, name);
}

Response Refusal::response() const {
  using Json = nlohmann::ordered_json;
  const Json parameter = parameter_.empty() ? Json() : Json(parameter_);
  const Json document = {{"error",
                          {{"message", what()},
                           {"type", error_type(status_)},
                           {"param", parameter},
                           {"code", status_}}}};
  return {.status = status_,
          .body = document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
          .headers = headers_};
}

std::string_view reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string lower_case(std::string_view ascii) {
  std::string lower(ascii);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

}  // namespace tempera::http
