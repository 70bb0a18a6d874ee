#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tempera/http/message.h"

namespace tempera::http {

// Reads requests from the bytes of a connection, in whatever pieces they come. Strict, because two
// readers of one message must not see two: lines end in CR LF, a length is given once, nothing is
// guessed. Knows no sockets.
class RequestParser {
 public:
  explicit RequestParser(const Limits& limits) : limits_(limits) {}

  // Throws Refusal for what is no request or too large; the connection cannot go on then.
  void feed(std::string_view bytes);

  bool done() const { return step_ == Step::kDone; }
  // Nothing of a request has come.
  bool empty() const { return step_ == Step::kRequestLine && buffer_.empty(); }
  bool in_body() const { return step_ > Step::kHeaders && step_ < Step::kDone; }
  // The client waits for a word before it sends the body.
  bool expects_continue() const { return expects_continue_ && in_body() && buffer_.empty(); }
  const Request& request() const { return request_; }

  // The request that is done. What came behind it is read by the next feed(), which may have no
  // bytes of its own: a fault in it is none of this request.
  Request take();

 private:
  // In the order of a message.
  enum class Step {
    kRequestLine,
    kHeaders,
    kBody,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailers,
    kDone
  };

  void advance();
  bool take_line(std::string_view& line);
  void read_line(std::string_view line);
  void read_request_line(std::string_view line);
  void read_header(std::string_view line);
  void read_chunk_size(std::string_view line);
  void end_head();
  bool take_body();

  Limits limits_;
  Request request_;
  Step step_ = Step::kRequestLine;
  std::string buffer_;
  size_t at_ = 0;          // in the buffer: what comes next
  size_t scanned_ = 0;     // no line ends between at_ and here
  size_t head_bytes_ = 0;  // of the lines so far, those between chunks left out
  size_t left_ = 0;        // bytes of the body, or of the chunk
  bool expects_continue_ = false;
};

}  // namespace tempera::http
