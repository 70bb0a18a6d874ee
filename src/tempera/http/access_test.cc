#include "tempera/http/access.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"

namespace tempera::http {
namespace {

Request asked(const std::string& host, const std::string& origin = "") {
  Request request{.method = "POST", .path = "/", .headers = {{"host", host}}};
  if (!origin.empty()) request.headers.emplace_back("origin", origin);
  return request;
}

std::string complaint(const Request& request, const Access& access = {}, bool loopback = true) {
  return message_of<Refusal>([&] { check_access(request, access, loopback); });
}

TEST(Access, OfAMachineAloneIsByItsOwnNames) {
  EXPECT_EQ(complaint(asked("localhost:8080")), "");
  EXPECT_EQ(complaint(asked("127.0.0.1")), "");
  EXPECT_EQ(complaint(asked("[::1]:80")), "");
  EXPECT_TRUE(says(complaint(asked("evil.example:8080")), "evil.example"));
  EXPECT_EQ(complaint(asked("models.example"), {}, /*loopback=*/false), "");
  EXPECT_EQ(complaint(asked("models.example"), {.hosts = {"models.example"}}), "");
}

TEST(Access, OfOtherPagesIsOnlyGivenWhenWanted) {
  EXPECT_EQ(complaint(asked("localhost:1", "http://localhost:1")), "");
  EXPECT_TRUE(says(complaint(asked("localhost:1", "http://localhost:2")), "may not use"));
  EXPECT_TRUE(says(complaint(asked("localhost:1", "null")), "may not use"));
  const Access access = {.origins = {"https://a.example"}};
  const auto fields = check_access(asked("localhost", "https://a.example"), access, true);
  EXPECT_EQ(fields.front().second, "https://a.example");
  EXPECT_TRUE(says(complaint(asked("localhost", "https://b.example"), access), "b.example"));
  EXPECT_EQ(complaint(asked("localhost", "https://b.example"), {.origins = {"*"}}), "");
}

TEST(Access, LetsPagesSendTheHeadersThatTheyName) {
  const auto allowed = [](const std::string& wanted) {
    Request request = asked("localhost", "https://a.example");
    if (!wanted.empty()) request.headers.emplace_back("access-control-request-headers", wanted);
    for (const auto& [name, value] :
         check_access(request, {.origins = {"https://a.example"}}, true))
      if (name == "Access-Control-Allow-Headers") return value;
    return std::string();
  };
  EXPECT_EQ(allowed(""), "Authorization, Content-Type");
  EXPECT_EQ(allowed("authorization,x-stainless-os"), "authorization,x-stainless-os");
  EXPECT_EQ(allowed("a\tb: c"), "Authorization, Content-Type");
}

}  // namespace
}  // namespace tempera::http
