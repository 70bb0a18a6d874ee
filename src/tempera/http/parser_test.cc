#include "tempera/http/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tempera/base/testing.h"

namespace tempera::http {
namespace {

// The status with which the bytes are refused; 0: they are one or more requests, or the beginning.
int refused(const std::string& bytes, const Limits& limits = {}) {
  try {
    RequestParser parser(limits);
    parser.feed(bytes);
    while (parser.done()) {
      parser.take();
      parser.feed({});
    }
  } catch (const Refusal& refusal) {
    return refusal.status();
  }
  return 0;
}

Request read(const std::string& bytes) {
  RequestParser parser({});
  parser.feed(bytes);
  EXPECT_TRUE(parser.done());
  return parser.take();
}

std::string with(const std::string& headers, const std::string& body = "") {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n\r\n" + body;
}

TEST(Parser, ReadsARequest) {
  const auto request = read(
      "POST /a%20b?x=1&y=%C3%A4+b&z HTTP/1.1\r\nHost: localhost\r\nX-Name:  two words \r\n"
      "Content-Length: 5\r\n\r\nhello");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query, (Fields{{"x", "1"}, {"y", "\xC3\xA4 b"}, {"z", ""}}));
  EXPECT_EQ(*request.header("x-name"), "two words");
  EXPECT_EQ(request.header("x-other"), nullptr);
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keep_alive);
}

TEST(Parser, ReadsRequestsInPiecesAndOneBehindTheOther) {
  const std::string bytes = with("Transfer-Encoding: Chunked",
                                 "3\r\nabc\r\n0a ; x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n") +
                            "GET /next HTTP/1.0\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    RequestParser parser({});
    std::vector<Request> requests;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      parser.feed(bytes.substr(at, piece));
      while (parser.done()) {
        requests.push_back(parser.take());
        parser.feed({});
      }
    }
    ASSERT_EQ(requests.size(), 2U);
    EXPECT_EQ(requests[0].body, "abc0123456789");
    EXPECT_EQ(requests[1].path, "/next");
    EXPECT_FALSE(requests[1].keep_alive);
    EXPECT_TRUE(parser.empty());
  }
}

TEST(Parser, KnowsWhenTheClientWaits) {
  RequestParser parser({});
  parser.feed(with("Content-Length: 2\r\nExpect: 100-continue"));
  EXPECT_TRUE(parser.expects_continue());
  parser.feed("ok");
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(refused(with("Expect: tea")), 417);
}

TEST(Parser, RefusesWhatTwoReadersCouldReadDifferently) {
  EXPECT_EQ(refused(with("Content-Length: 3\r\nTransfer-Encoding: chunked")), 400);
  EXPECT_EQ(refused(with("Content-Length: 3\r\nContent-Length: 3")), 400);
  EXPECT_EQ(refused(with("Content-Length: 3, 3")), 400);
  EXPECT_EQ(refused(with("Content-Length: +3")), 400);
  EXPECT_EQ(refused(with("Content-Length: 0x3")), 400);
  EXPECT_EQ(refused(with("Content-Length:")), 400);
  EXPECT_EQ(refused(with("Content-Length: -1")), 400);
  EXPECT_EQ(refused(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")), 400);
  EXPECT_EQ(refused(with("Transfer-Encoding: gzip, chunked")), 501);
  EXPECT_EQ(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(refused(with("X: a\r\n folded")), 400);
  EXPECT_EQ(refused(with("X : a")), 400);
  EXPECT_EQ(refused(with("X: a\rb")), 400);
  EXPECT_EQ(refused(with(std::string("X: a\0b", 6))), 400);
  EXPECT_EQ(refused(with("Host: b")), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refused("\r\n\r\nGET / HTTP/1.1\r\n"), 400);
  EXPECT_EQ(refused("\r\nGET / HTTP/1.1\r\n"), 0);
}

TEST(Parser, RefusesBadChunks) {
  const auto chunks = [](const std::string& body) {
    return refused(with("Transfer-Encoding: chunked", body));
  };
  EXPECT_EQ(chunks("3\r\nabc\r\n0\r\n\r\n"), 0);
  EXPECT_EQ(chunks("x\r\n"), 400);
  EXPECT_EQ(chunks(" 3\r\nabc\r\n"), 400);
  EXPECT_EQ(chunks("0x3\r\nabc\r\n"), 400);
  EXPECT_EQ(chunks("-3\r\nabc\r\n"), 400);
  EXPECT_EQ(chunks("\r\nabc\r\n"), 400);
  EXPECT_EQ(chunks("3\r\nabcd\r\n"), 400);
  EXPECT_EQ(chunks("3\nabc\r\n"), 400);
  EXPECT_EQ(chunks("3;" + std::string(300, 'x')), 400);
  EXPECT_EQ(chunks("FFFFFFFFFFFFFFFF\r\n"), 413);
  EXPECT_EQ(chunks("FFFFFFFFFFFFFFFFF\r\n"), 413);
}

TEST(Parser, HasLimits) {
  const Limits small = {.head_bytes = 100, .headers = 3, .body_bytes = 10};
  EXPECT_EQ(refused("GET /" + std::string(200, 'a'), small), 414);
  EXPECT_EQ(refused(with("X: " + std::string(100, 'a')), small), 431);
  EXPECT_EQ(refused(with("X: 1\r\nX: 2\r\nX: 3"), small), 431);
  EXPECT_EQ(refused(with("Content-Length: 11"), small), 413);
  EXPECT_EQ(refused(with("Content-Length: 10"), small), 0);
  EXPECT_EQ(refused(with("Content-Length: 99999999999999999999999"), small), 413);
  EXPECT_EQ(refused(with("Transfer-Encoding: chunked", "6\r\nabcdef\r\n5\r\n"), small), 413);
  EXPECT_EQ(refused(with("Transfer-Encoding: chunked", "0\r\nT: " + std::string(100, 'a')), small),
            431);
}

}  // namespace
}  // namespace tempera::http
