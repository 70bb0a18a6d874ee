#include "tempera/http/server.h"

#include <atomic>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "tempera/http/parser.h"

namespace tempera::http {
namespace {

constexpr size_t kPiece = size_t{256} << 10;
constexpr double kLingerSeconds = 1;

std::string hexadecimal(size_t value) {
  std::string digits;
  for (; value > 0; value /= 16) digits.insert(digits.begin(), "0123456789abcdef"[value % 16]);
  return digits;
}

// Waits for a whole request; none where the connection has ended.
std::optional<Request> read_request(Socket& socket, RequestParser& parser, const Limits& limits,
                                    const Notice& stopping) {
  const Time idle_end = seconds_from_now(limits.idle_seconds);
  std::optional<Time> head_end, body_end;
  bool told = false;
  parser.feed({});  // what came with the request before
  while (!parser.done()) {
    if (!parser.empty() && !head_end) head_end = seconds_from_now(limits.head_seconds);
    if (parser.in_body() && !body_end) body_end = seconds_from_now(limits.body_seconds);
    if (parser.expects_continue() && !std::exchange(told, true) &&
        !socket.write_all("HTTP/1.1 100 Continue\r\n\r\n", *body_end))
      return {};
    const Time until = body_end ? *body_end : head_end.value_or(idle_end);
    const Wait wait = socket.wait_readable(until, head_end ? nullptr : &stopping);
    if (wait == Wait::kTimeout && head_end) throw Refusal(408, "the request did not come in time");
    if (wait != Wait::kReady) return {};
    std::string bytes;
    if (!socket.read_some(bytes)) return {};
    parser.feed(bytes);
  }
  return parser.take();
}

}  // namespace

Reply::Reply(Socket& socket, const Request& request, const Limits& limits, Fields fields,
             bool keep_alive)
    : socket_(socket),
      request_(request),
      limits_(limits),
      fields_(std::move(fields)),
      keep_alive_(keep_alive) {}

std::string Reply::head(const Response& response, const std::string& length) const {
  std::string text = concat("HTTP/1.1 ", response.status, " ", reason(response.status), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  if (!response.type.empty() && response.status != 204) add("Content-Type", response.type);
  for (const auto& fields : {response.headers, fields_})
    for (const auto& [name, value] : fields) add(name, value);
  add("X-Content-Type-Options", "nosniff");
  if (!length.empty()) text += length + "\r\n";
  add("Connection", keep_alive_ ? "keep-alive" : "close");
  return text + "\r\n";
}

bool Reply::put(std::string_view bytes) {
  while (!bytes.empty() && !broken_) {
    const std::string_view piece = bytes.substr(0, kPiece);
    broken_ = !socket_.write_all(piece, seconds_from_now(limits_.write_seconds));
    bytes.remove_prefix(piece.size());
  }
  return !broken_;
}

void Reply::send(const Response& response) {
  TEMPERA_CHECK(!started_, "a request is answered once");
  started_ = true;
  status_ = response.status;
  const bool no_body = response.status == 204 || response.status == 304;
  const std::string length = no_body ? "" : concat("Content-Length: ", response.body.size());
  std::string text = head(response, length);
  if (request_.method == "HEAD" || no_body) {
    put(text);
  } else if (response.body.size() < kPiece) {
    put(text += response.body);
  } else if (put(text)) {
    put(response.body);
  }
}

void Reply::start(const Response& response) {
  TEMPERA_CHECK(!started_, "a request is answered once");
  started_ = true;
  status_ = response.status;
  // A client of HTTP/1.0 knows no chunks: the end of the connection is that of the stream.
  chunked_ = request_.minor_version == 1;
  keep_alive_ = keep_alive_ && chunked_;
  streaming_ = request_.method != "HEAD";
  put(head(response, chunked_ ? "Transfer-Encoding: chunked" : ""));
  if (!response.body.empty()) write(response.body);
}

bool Reply::write(std::string_view piece) {
  if (!streaming_) return !broken_;
  if (piece.empty()) return !broken_;  // an empty chunk would be the last
  if (!chunked_) return put(piece);
  std::string chunk = hexadecimal(piece.size()) + "\r\n";
  chunk.append(piece).append("\r\n");
  return put(chunk);
}

bool Reply::is_client_gone() const { return broken_ || socket_.is_gone(); }

void Reply::finish(bool whole) {
  if (!started_ || !whole) broken_ = true;
  if (streaming_ && chunked_ && !broken_) put("0\r\n\r\n");
}

struct Server::Connection {
  explicit Connection(Descriptor descriptor) : socket(std::move(descriptor)) {}
  Socket socket;
  std::atomic<bool> done = false;
  std::thread thread;
};

Server::Server(ServerOptions options, Handler handler)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      listener_(options_.address, options_.port),
      port_(listener_.port()),
      acceptor_([this] { accept_connections(); }) {}

Server::~Server() { stop(0); }

void Server::accept_connections() {
  while (true) {
    const Wait wait = listener_.wait(stopping_);
    if (wait == Wait::kNotice) return;
    reap();
    if (wait == Wait::kTimeout) continue;
    Descriptor descriptor = listener_.accept();
    if (descriptor.number() >= 0) {
      add(std::move(descriptor));
    } else if (!stopping_.given()) {
      // Without descriptors, say: those that end make room.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

void Server::add(Descriptor descriptor) {
  auto connection = std::make_unique<Connection>(std::move(descriptor));
  Connection* const raw = connection.get();
  const std::lock_guard lock(mutex_);
  if (connections_.size() >= static_cast<size_t>(options_.connections)) {
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
        "Connection: close\r\n\r\n";
    if (!options_.tls) raw->socket.write_all(kBusy, seconds_from_now(0));
    return;
  }
  connections_.push_back(std::move(connection));
  try {
    raw->thread = std::thread([this, raw] {
      try {
        serve(raw->socket);
      } catch (const std::exception& error) {
        if (options_.on_failure) options_.on_failure(error.what());
      }
      raw->socket.shut_down();
      raw->done = true;
    });
  } catch (const std::system_error&) {
    connections_.pop_back();  // no thread for it
  }
}

void Server::reap() {
  std::list<std::unique_ptr<Connection>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto next = connections_.begin(); next != connections_.end();) {
      const auto connection = next++;
      if ((*connection)->done) ended.splice(ended.end(), connections_, connection);
    }
  }
  for (const auto& connection : ended) connection->thread.join();
}

void Server::serve(Socket& socket) {
  if (options_.tls &&
      !socket.encrypt(*options_.tls, seconds_from_now(options_.limits.head_seconds)))
    return;
  RequestParser parser(options_.limits);
  try {
    while (!stopping_.given()) {
      const auto request = read_request(socket, parser, options_.limits, stopping_);
      if (!request || !answer(socket, *request)) return socket.linger(request ? kLingerSeconds : 0);
    }
  } catch (const Refusal& refusal) {
    refuse(socket, refusal);
  }
}

// What cannot be read ends the connection: nobody knows where the next request would begin.
void Server::refuse(Socket& socket, const Refusal& refusal) {
  const Request unread;
  Reply reply(socket, unread, options_.limits, {}, /*keep_alive=*/false);
  reply.send(refusal.response());
  socket.linger(kLingerSeconds);
}

// False: the connection is to be closed.
bool Server::answer(Socket& socket, const Request& request) {
  const bool keep_alive = request.keep_alive && !stopping_.given();
  Fields fields;
  std::optional<Refusal> refusal;
  try {
    fields = check_access(request, options_.access, is_loopback(options_.address));
  } catch (const Refusal& error) {
    refusal = error;
  }
  Reply reply(socket, request, options_.limits, std::move(fields), keep_alive);
  try {
    if (refusal) throw *refusal;
    handler_(request, reply);
    reply.finish(/*whole=*/true);
  } catch (const std::exception& error) {
    const bool whole = !reply.started();
    const auto* known = dynamic_cast<const Refusal*>(&error);
    if (!known && options_.on_failure) options_.on_failure(error.what());
    if (whole)
      reply.send(known ? known->response()
                       : Refusal(500, "the server failed at this request").response());
    reply.finish(whole);
  }
  return reply.keep_alive();
}

void Server::stop(double seconds) {
  stopping_.give();
  if (acceptor_.joinable()) acceptor_.join();
  listener_.close();  // those who come now would wait for nobody
  const Time until = seconds_from_now(seconds);
  const auto busy = [&] {
    reap();
    const std::lock_guard lock(mutex_);
    return !connections_.empty();
  };
  while (busy() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  {
    const std::lock_guard lock(mutex_);
    for (const auto& connection : connections_) connection->socket.shut_down();
  }
  while (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace tempera::http
