#include "tempera/http/target.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"

namespace tempera::http {
namespace {

std::string complaint(const std::string& target) {
  return message_of<Refusal>([&] {
    Request request{.method = "GET"};
    parse_target(target, request);
  });
}

TEST(Target, HasAPathAndAQuery) {
  Request request{.method = "GET"};
  parse_target("http://Host:80/a/%62?c=d=e&&f", request);
  EXPECT_EQ(request.path, "/a/b");
  EXPECT_EQ(request.query, (Fields{{"c", "d=e"}, {"f", ""}}));
  Request bare{.method = "GET"};
  parse_target("HTTP://host", bare);
  EXPECT_EQ(bare.path, "/");
  EXPECT_TRUE(bare.query.empty());
}

TEST(Target, IsTextInUtf8) {
  EXPECT_TRUE(says(complaint("/%"), "hexadecimal"));
  EXPECT_TRUE(says(complaint("/%4"), "hexadecimal"));
  EXPECT_TRUE(says(complaint("/%g0"), "hexadecimal"));
  EXPECT_TRUE(says(complaint("/%ff"), "UTF-8"));
  EXPECT_TRUE(says(complaint("/?a=%C0%80"), "UTF-8"));
  EXPECT_TRUE(says(complaint("/%00"), "control"));
  EXPECT_TRUE(says(complaint("/a\x7f"), "control"));
  EXPECT_TRUE(says(complaint("host:80"), "begins with /"));
  EXPECT_TRUE(says(complaint("/a#b"), "no #"));
  EXPECT_TRUE(says(complaint("*"), "begins with /"));
  EXPECT_EQ(complaint("/%e2%82%ac"), "");
}

}  // namespace
}  // namespace tempera::http
