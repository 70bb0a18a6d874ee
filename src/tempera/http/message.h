#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::http {

// Fields by name and value, in the order of the message.
using Fields = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = {};
  std::string path = {};   // decoded, valid UTF-8, begins with '/'; "*" of an OPTIONS for all
  Fields query = {};       // decoded, valid UTF-8
  Fields headers = {};     // names in lower case
  std::string body = {};   // of a chunked request, its chunks joined
  int minor_version = 1;   // of HTTP/1.x
  bool keep_alive = true;  // what the client asks for

  // The value of the header, by its name in lower case; null: there is none.
  const std::string* header(std::string_view name) const;
  // The same of a query field, the first of that name.
  const std::string* query_value(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json";  // of the body; empty: no such field
  std::string body = {};
  Fields headers = {};  // beside those of the connection, the length and the type
};

// Why a request is not answered as asked: a status from 400 to 599 and a message for the client.
class Refusal : public Error {
 public:
  Refusal(int status, const std::string& message, std::string parameter = {}, Fields headers = {})
      : Error(message),
        status_(status),
        parameter_(std::move(parameter)),
        headers_(std::move(headers)) {}
  int status() const { return status_; }
  // As JSON in the form that OpenAI's clients read.
  Response response() const;

 private:
  int status_;
  std::string parameter_;  // the field of the request that is wrong; empty: none in particular
  Fields headers_;
};

std::string_view reason(int status);
std::string lower_case(std::string_view ascii);

// What a request may take. A client that takes more meets a Refusal.
struct Limits {
  size_t head_bytes = size_t{16} << 10;  // of the request line and the headers, and of trailers
  size_t headers = 100;
  size_t body_bytes = size_t{8} << 20;
  double head_seconds = 10;  // from its first byte to its last
  double body_seconds = 60;
  double idle_seconds = 60;   // between requests
  double write_seconds = 30;  // in which a client has to take a piece of an answer
};

}  // namespace tempera::http
