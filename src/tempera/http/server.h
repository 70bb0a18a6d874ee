#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tempera/http/access.h"
#include "tempera/http/message.h"
#include "tempera/http/socket.h"

namespace tempera::http {

// The answer to one request, which its handler gives whole or as a stream.
class Reply {
 public:
  Reply(Socket& socket, const Request& request, const Limits& limits, Fields fields,
        bool keep_alive);

  void send(const Response& response);

  // A stream: start, pieces, and its end when the handler returns. The response's body is the
  // first piece.
  void start(const Response& response);
  // False: the client is gone or too slow, and the stream is over.
  bool write(std::string_view piece);

  // The client has gone, so that nobody waits for an answer. Cheap; ask while computing one.
  bool is_client_gone() const;

  bool started() const { return started_; }
  int status() const { return status_; }
  // The connection can carry another request.
  bool keep_alive() const { return keep_alive_ && !broken_; }
  // Ends a stream. What was never answered, or broke off, ends the connection.
  void finish(bool whole);

 private:
  std::string head(const Response& response, const std::string& length) const;
  bool put(std::string_view bytes);

  Socket& socket_;
  const Request& request_;
  const Limits& limits_;
  Fields fields_;
  bool keep_alive_;
  bool started_ = false, streaming_ = false, chunked_ = false, broken_ = false;
  int status_ = 0;
};

// Called on the connection's own thread. What it throws becomes an error for the client.
using Handler = std::function<void(const Request&, Reply&)>;

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;      // 0: any free one
  int connections = 512;  // at a time; more are told to come again
  Limits limits = {};
  Access access = {};
  std::shared_ptr<const TlsContext> tls = {};  // connections are encrypted
  // Told of what went wrong inside, for a log: never a request's contents.
  std::function<void(const std::string&)> on_failure = {};
};

// An HTTP/1.1 server, a thread a connection. Listens once it is made.
class Server {
 public:
  Server(ServerOptions options, Handler handler);
  // Stops at once.
  ~Server();

  uint16_t port() const { return port_; }

  // Takes no more connections and requests, and waits for those under way to end, at most that
  // long; what is left then is cut off.
  void stop(double seconds);

 private:
  struct Connection;

  void accept_connections();
  void add(Descriptor descriptor);
  void reap();
  void serve(Socket& socket);
  bool answer(Socket& socket, const Request& request);
  void refuse(Socket& socket, const Refusal& refusal);

  ServerOptions options_;
  Handler handler_;
  Listener listener_;
  uint16_t port_;
  Notice stopping_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread acceptor_;
};

}  // namespace tempera::http
