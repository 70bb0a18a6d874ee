#include "tempera/http/parser.h"

#include <algorithm>
#include <charconv>

#include "tempera/http/target.h"

namespace tempera::http {
namespace {

constexpr size_t kMostChunkLine = 256;

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_field_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

size_t number(std::string_view digits, int base, std::string_view what) {
  size_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc::result_out_of_range) throw Refusal(413, concat(what, " is too large"));
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    throw Refusal(400, concat(what, " is not a number"));
  return value;
}

size_t times_given(const Request& request, std::string_view name) {
  return static_cast<size_t>(std::ranges::count(
      request.headers, name, [](const auto& field) -> std::string_view { return field.first; }));
}

// Whether a list such as that of Connection has the word.
bool lists(const std::string* value, std::string_view word) {
  if (!value) return false;
  std::string_view rest = *value;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    if (lower_case(trimmed(item)) == word) return true;
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  return false;
}

}  // namespace

void RequestParser::feed(std::string_view bytes) {
  buffer_ += bytes;
  advance();
}

Request RequestParser::take() {
  TEMPERA_CHECK(done(), "no request is complete");
  Request request = std::move(request_);
  request_ = {};
  step_ = Step::kRequestLine;
  head_bytes_ = 0;
  expects_continue_ = false;
  return request;
}

void RequestParser::advance() {
  while (step_ != Step::kDone) {
    if (step_ == Step::kBody || step_ == Step::kChunk) {
      if (!take_body()) break;
      continue;
    }
    std::string_view line;
    if (!take_line(line)) break;
    read_line(line);
  }
  buffer_.erase(0, at_);
  scanned_ -= at_;
  at_ = 0;
}

// The next line without its end, once it is there.
bool RequestParser::take_line(std::string_view& line) {
  const bool chunk = step_ == Step::kChunkSize || step_ == Step::kChunkEnd;
  const size_t most = chunk ? kMostChunkLine : limits_.head_bytes - head_bytes_;
  const size_t end = buffer_.find('\n', std::max(scanned_, at_));
  const size_t size = std::min(end, buffer_.size()) - at_;
  if (size > most) {
    if (chunk) throw Refusal(400, "the line in front of a chunk is too long");
    if (step_ == Step::kRequestLine)
      throw Refusal(414, concat("the address is longer than ", limits_.head_bytes, " bytes"));
    throw Refusal(431, concat("the headers are longer than ", limits_.head_bytes, " bytes"));
  }
  scanned_ = buffer_.size();
  if (end == std::string::npos) return false;
  if (size == 0 || buffer_[end - 1] != '\r')
    throw Refusal(400, "a line that does not end in CR LF");
  line = std::string_view(buffer_).substr(at_, size - 1);
  at_ = scanned_ = end + 1;
  if (!chunk) head_bytes_ += size;
  return true;
}

void RequestParser::read_line(std::string_view line) {
  switch (step_) {
    case Step::kRequestLine:
      // One empty line in front, which old clients send behind a body.
      if (line.empty() && head_bytes_ == 1) return;
      return read_request_line(line);
    case Step::kHeaders:
      if (line.empty()) return end_head();
      return read_header(line);
    case Step::kChunkSize:
      return read_chunk_size(line);
    case Step::kChunkEnd:
      if (!line.empty()) throw Refusal(400, "a chunk that is longer than its size");
      step_ = Step::kChunkSize;
      return;
    default:  // trailers, which nobody reads
      if (line.empty()) step_ = Step::kDone;
  }
}

void RequestParser::read_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first || line.find(' ', first + 1) != last)
    throw Refusal(400, "a request line is \"METHOD /path HTTP/1.1\"");
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (version.starts_with("HTTP/"))
      throw Refusal(505, "HTTP/1.1 and HTTP/1.0 are spoken here, no other version");
    throw Refusal(400, "a request line ends in HTTP/1.1");
  }
  if (!is_token(line.substr(0, first))) throw Refusal(400, "a method is one word");
  request_.method = line.substr(0, first);
  request_.minor_version = version.back() - '0';
  parse_target(line.substr(first + 1, last - first - 1), request_);
  step_ = Step::kHeaders;
}

void RequestParser::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) ||
      !is_field_value(line.substr(colon + 1)))
    throw Refusal(400, "a header that is not \"Name: value\"");
  if (request_.headers.size() == limits_.headers)
    throw Refusal(431, concat("more than ", limits_.headers, " headers"));
  request_.headers.emplace_back(lower_case(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
}

void RequestParser::end_head() {
  const size_t hosts = times_given(request_, "host");
  if (hosts > 1 || (hosts == 0 && request_.minor_version == 1))
    throw Refusal(400, "a request has one Host header");
  const std::string* connection = request_.header("connection");
  request_.keep_alive =
      request_.minor_version == 1 ? !lists(connection, "close") : lists(connection, "keep-alive");
  if (const auto* expectation = request_.header("expect"); expectation) {
    if (lower_case(*expectation) != "100-continue")
      throw Refusal(417, "Expect: 100-continue is all that can be expected");
    expects_continue_ = request_.minor_version == 1;
  }
  const size_t lengths = times_given(request_, "content-length");
  const size_t encodings = times_given(request_, "transfer-encoding");
  if (lengths + encodings > 1) throw Refusal(400, "the length of the body is given more than once");
  if (encodings == 1) {
    if (request_.minor_version == 0) throw Refusal(400, "HTTP/1.0 has no Transfer-Encoding");
    if (lower_case(*request_.header("transfer-encoding")) != "chunked")
      throw Refusal(501, "chunked is the only Transfer-Encoding that is read here");
    head_bytes_ = 0;  // the trailers have a bound of their own
    step_ = Step::kChunkSize;
    return;
  }
  left_ = lengths == 0 ? 0 : number(*request_.header("content-length"), 10, "Content-Length");
  if (left_ > limits_.body_bytes)
    throw Refusal(413,
                  concat("a body of ", left_, " bytes; at most ", limits_.body_bytes, " are read"));
  step_ = left_ == 0 ? Step::kDone : Step::kBody;
}

void RequestParser::read_chunk_size(std::string_view line) {
  // Extensions have no meaning here.
  const std::string_view size = line.substr(0, line.find_first_of(" \t;"));
  if (!is_field_value(line)) throw Refusal(400, "a control character in front of a chunk");
  left_ = number(size, 16, "the size of a chunk");
  if (left_ > limits_.body_bytes - request_.body.size())
    throw Refusal(413, concat("a body of more than ", limits_.body_bytes, " bytes"));
  step_ = left_ == 0 ? Step::kTrailers : Step::kChunk;
}

bool RequestParser::take_body() {
  const size_t size = std::min(left_, buffer_.size() - at_);
  request_.body.append(buffer_, at_, size);
  at_ += size;
  scanned_ = at_;
  left_ -= size;
  if (left_ > 0) return false;
  step_ = step_ == Step::kBody ? Step::kDone : Step::kChunkEnd;
  return true;
}

}  // namespace tempera::http
