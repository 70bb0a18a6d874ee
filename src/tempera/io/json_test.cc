#include "tempera/io/json.h"

#include <gtest/gtest.h>

#include <string>

#include "tempera/base/testing.h"

namespace tempera::io {
namespace {

std::string json_complaint(std::string_view text, int depth = 64) {
  return message_of([&] { parse_json(text, "file.json", depth); });
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(JsonTest, ParsesWhatIsValid) {
  const auto json = parse_json(R"({"a": [1, 2.5, {"a": "\u00e9"}], "b": {"a": null}})", "x");
  EXPECT_EQ(json["a"][1], 2.5);
  EXPECT_EQ(json["a"][2]["a"], "\u00e9");
  EXPECT_TRUE(json["b"]["a"].is_null());
  EXPECT_EQ(parse_json("7", "x"), 7);
}

TEST(JsonTest, RefusesDuplicateKeys) {
  EXPECT_TRUE(contains(json_complaint(R"({"a": 1, "b": 2, "a": 3})"),
                       "file.json: the key \"a\" appears twice"));
  EXPECT_TRUE(contains(json_complaint(R"({"a": 1, "\u0061": 3})"), "appears twice"));
  EXPECT_TRUE(contains(json_complaint(R"({"x": [{"a": {"b": 1}, "c": 1, "a": 3}]})"),
                       "\"a\" appears twice"));
  // The same key in different objects is fine.
  EXPECT_EQ(json_complaint(R"({"a": {"a": [{"a": 1}, {"a": 2}]}})"), "");
}

TEST(JsonTest, RefusesDeepNesting) {
  EXPECT_EQ(json_complaint("[[[1]]]", 3), "");
  EXPECT_TRUE(contains(json_complaint("[[[[1]]]]", 3), "deeper than 3"));
  EXPECT_TRUE(contains(json_complaint(R"({"a":{"b":{"c":{}}}})", 3), "deeper than 3"));
  EXPECT_TRUE(contains(json_complaint(std::string(1000000, '[')), "deeper than 64"));
}

TEST(JsonTest, RefusesMoreKeysThanAreTaken) {
  const auto complaint = [](std::string_view text) {
    return message_of([&] { parse_ordered_json(text, "x", 64, /*most_keys=*/2); });
  };
  EXPECT_EQ(complaint(R"({"a": {"a": 1, "b": 2}, "b": [{"c": 1, "d": 2}, {"e": 3}]})"), "");
  EXPECT_EQ(complaint(R"({"a": 1, "b": [{"c": 1, "d": 2, "e": 3}]})"),
            "x: an object with more than 2 keys");
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "{} x", "{'a': 1}", "[1,]", "nul", "{\"a\" 1}", "// c\n1",
                           "\"\xff\"", "[01]", "NaN"})
    EXPECT_TRUE(contains(json_complaint(text), "file.json: not valid JSON")) << text;
  EXPECT_TRUE(contains(json_complaint(std::string_view("{}\0]", 4)),
                       "not valid JSON: it holds a zero byte"));
}

}  // namespace
}  // namespace tempera::io
