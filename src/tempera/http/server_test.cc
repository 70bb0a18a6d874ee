#include "tempera/http/server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/http/router.h"

namespace tempera::http {
namespace {

// Far more than a busy machine keeps a thread waiting.
constexpr double kPatience = 60;

Limits limits() {
  return {.body_bytes = 1000,
          .head_seconds = kPatience,
          .body_seconds = kPatience,
          .idle_seconds = kPatience,
          .write_seconds = kPatience};
}

Server make_server(const Handler& handler, int connections = 16) {
  return Server({.connections = connections, .limits = limits()}, handler);
}

// For clients that are too slow on purpose.
Server make_impatient_server(const Handler& handler) {
  Limits quick = limits();
  quick.head_seconds = quick.body_seconds = quick.write_seconds = 0.2;
  return Server({.limits = quick}, handler);
}

class Client {
 public:
  explicit Client(const Server& server) : socket_(connect(server.port())) {}

  Client& send(std::string_view bytes) {
    EXPECT_TRUE(socket_.write_all(bytes, seconds_from_now(kPatience)));
    return *this;
  }
  // What comes until the text ends with this, or until the connection does.
  std::string read(const std::string& end = "") {
    std::string text;
    while (end.empty() || !text.ends_with(end))
      if (socket_.wait_readable(seconds_from_now(kPatience)) != Wait::kReady ||
          !socket_.read_some(text))
        break;
    return text;
  }
  Socket& socket() { return socket_; }

 private:
  static Descriptor connect(uint16_t port) {
    Descriptor descriptor(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor.number(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              0);
    return descriptor;
  }
  Socket socket_;
};

std::string get(const std::string& path, const std::string& headers = "Connection: close\r\n") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

void echo(const Request& request, Reply& reply) {
  reply.send({.type = "text/plain", .body = request.method + " " + request.path + request.body});
}

TEST(Server, AnswersRequestsOfOneConnectionInOrder) {
  const Server server = make_server(echo);
  Client client(server);
  client.send(get("/1", "") + get("/2", "") + get("/3"));
  const std::string all = client.read();
  const size_t first = all.find("GET /1"), second = all.find("GET /2"), third = all.find("GET /3");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
  EXPECT_TRUE(says(all, "Connection: close"));
}

TEST(Server, AnswersARequestInFrontOfOneThatIsNone) {
  const Server server = make_server(echo);
  const std::string all = Client(server).send(get("/1", "") + "nonsense\r\n").read();
  EXPECT_LT(all.find("GET /1"), all.find("400 Bad Request"));
}

TEST(Server, StreamsInChunks) {
  const Server server = make_server([](const Request&, Reply& reply) {
    reply.start({.type = "text/event-stream"});
    reply.write("data: 1\n\n");
    reply.write("");
    reply.write("data: 2\n\n");
  });
  const std::string chunked = Client(server).send(get("/", "")).read("0\r\n\r\n");
  EXPECT_TRUE(says(chunked, "\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"));
  const std::string old = Client(server).send("GET / HTTP/1.0\r\n\r\n").read();
  EXPECT_TRUE(says(old, "\r\n\r\ndata: 1\n\ndata: 2\n\n"));
}

TEST(Server, TellsErrorsApart) {
  std::string told;
  Server server({.limits = limits(), .on_failure = [&](const std::string& what) { told = what; }},
                [](const Request& request, Reply&) {
                  if (request.path == "/bad") throw Refusal(400, "no such thing", "thing");
                  throw Error("a secret");
                });
  const std::string bad = Client(server).send(get("/bad")).read();
  EXPECT_TRUE(says(bad, "400 Bad Request"));
  EXPECT_TRUE(says(bad, R"("message":"no such thing")"));
  EXPECT_TRUE(says(bad, R"("param":"thing")"));
  const std::string failed = Client(server).send(get("/")).read();
  EXPECT_TRUE(says(failed, "500 Internal Server Error"));
  EXPECT_EQ(failed.find("secret"), std::string::npos);
  server.stop(kPatience);
  EXPECT_EQ(told, "a secret");
}

TEST(Server, HeadHasNoBodyAndOptionsSayWhatThereIs) {
  Router router;
  router.add("GET", "/a", echo);
  router.add("POST", "/a", echo);
  router.add("GET", "/b/*", echo);
  const Server server = make_server(router);
  const std::string head =
      Client(server)
          .send("HEAD /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
          .read();
  EXPECT_TRUE(says(head, "Content-Length: 7"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  const std::string options =
      Client(server)
          .send("OPTIONS /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
          .read();
  EXPECT_TRUE(says(options, "204 No Content"));
  EXPECT_TRUE(says(options, "Allow: GET, POST, OPTIONS"));
  EXPECT_TRUE(says(Client(server).send(get("/c")).read(), "404"));
  EXPECT_TRUE(says(Client(server).send(get("/b/c%20d")).read(), "GET /b/c d"));
  const std::string other =
      Client(server).send("PUT /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").read();
  EXPECT_TRUE(says(other, "405"));
  EXPECT_TRUE(says(other, "Allow: GET, POST, OPTIONS"));
}

TEST(Server, WaitsForSlowClientsOnlySoLong) {
  const Server server = make_impatient_server(echo);
  EXPECT_TRUE(says(Client(server).send("GET / HT").read(), "408"));
  EXPECT_TRUE(says(Client(server)
                       .send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
                       .read(),
                   "408"));
  const std::string large =
      Client(server)
          .send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n" +
                std::string(500, 'x'))
          .read();
  EXPECT_TRUE(says(large, "413"));
}

TEST(Server, AsksForABodyThatWaits) {
  const Server server = make_server(echo);
  Client client(server);
  client.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(says(client.send("ok").read(), "POST /ok"));
}

TEST(Server, NoticesThatAClientLeft) {
  std::promise<bool> noticed;
  const Server server = make_server([&](const Request&, Reply& reply) {
    for (int i = 0; i < 10'000 && !reply.is_client_gone(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    noticed.set_value(reply.is_client_gone());
  });
  { Client(server).send(get("/")); }
  EXPECT_TRUE(noticed.get_future().get());
}

TEST(Server, GivesUpOnAReaderThatStoppedReading) {
  std::promise<bool> written;
  const Server server = make_impatient_server([&](const Request&, Reply& reply) {
    reply.start({});
    bool going = true;
    for (int i = 0; i < 200 && going; ++i) going = reply.write(std::string(size_t{1} << 20, 'x'));
    written.set_value(going);
  });
  Client client(server);
  client.send(get("/"));
  EXPECT_FALSE(written.get_future().get());
}

TEST(Server, RefusesConnectionsBeyondItsNumber) {
  std::promise<void> go;
  const auto ready = go.get_future().share();
  const Server server = make_server(
      [&](const Request& request, Reply& reply) {
        ready.wait();
        echo(request, reply);
      },
      /*connections=*/2);
  Client first(server), second(server);
  first.send(get("/1"));
  second.send(get("/2"));
  EXPECT_TRUE(says(Client(server).read(), "503"));
  go.set_value();
  EXPECT_TRUE(says(first.read(), "GET /1"));
  EXPECT_TRUE(says(second.read(), "GET /2"));
}

TEST(Server, EndsWhatIsUnderWayBeforeItStops) {
  std::promise<void> begun;
  Server server = make_server([&](const Request& request, Reply& reply) {
    begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    echo(request, reply);
  });
  Client idle(server), busy(server);
  busy.send(get("/", ""));
  begun.get_future().wait();
  server.stop(kPatience);
  EXPECT_TRUE(says(busy.read(), "GET /"));
  EXPECT_EQ(idle.read(), "");
}

TEST(Server, CutsOffWhatDoesNotEnd) {
  std::atomic<bool> broken = false;
  std::promise<void> begun;
  Server server = make_server([&](const Request&, Reply& reply) {
    reply.start({});
    begun.set_value();
    while (reply.write("x")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    broken = true;
  });
  Client client(server);
  client.send(get("/"));
  begun.get_future().wait();
  server.stop(0.05);
  EXPECT_TRUE(broken);
}

TEST(Server, ServesManyClientsAtOnce) {
  const Server server = make_server(echo, 64);
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&, i] {
      Client client(server);
      for (int k = 0; k < 20; ++k) {
        const std::string path = concat("/", i, "/", k);
        client.send(get(path, ""));
        right += client.read("GET " + path).ends_with("GET " + path) ? 1 : 0;
      }
    });
  for (auto& client : clients) client.join();
  EXPECT_EQ(right, 320);
}

// What a client of a crowd does; whether all was as it should be.
bool act(const Server& server, int kind, int number) {
  Client client(server);
  const std::string path = concat("/", number);
  switch (kind) {
    case 0: {  // asks and leaves
      client.send(get(path));
      return true;
    }
    case 1: {  // leaves within a request
      client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nabc");
      return true;
    }
    case 2: {  // sends what is no request
      client.send(
          "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
      return client.read().starts_with("HTTP/1.1 400 ");
    }
    case 3: {  // reads slowly
      client.send(get(path));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      break;
    }
    default:
      client.send(get(path));
  }
  const std::string answer = client.read();
  return answer.starts_with("HTTP/1.1 200 ") && says(answer, "whole " + path);
}

TEST(Server, HoldsUnderClientsOfEveryKind) {
  Server server = make_server(
      [](const Request& request, Reply& reply) {
        reply.start({.type = "text/plain"});
        for (int i = 0; i < 20 && !reply.is_client_gone(); ++i)
          if (!reply.write(std::string(500, 'x'))) return;
        reply.write("whole " + request.path);
      },
      /*connections=*/64);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 24; ++i)
      clients.emplace_back([&, i] {
        for (int k = 0; k < 25; ++k) wrong += act(server, (i + k) % 8, 100 * i + k) ? 0 : 1;
      });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(act(server, 7, 1));
  server.stop(kPatience);
}

}  // namespace
}  // namespace tempera::http
