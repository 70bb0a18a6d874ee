#include "tempera/study/record.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"

namespace tempera::study {
namespace {

struct Inner {
  int64_t count = 0;
  double value = 0;

  static void fields(auto& self, auto&& field) {
    field("count", self.count);
    field("value", self.value);
  }
};

struct Outer {
  std::string name;
  std::vector<std::pair<int64_t, double>> curve;
  ByName<Inner> sizes;
  std::optional<double> extra;
  Json anything;

  static void fields(auto& self, auto&& field) {
    field("name", self.name);
    field("curve", self.curve);
    field("sizes", self.sizes);
    field("extra", self.extra);
    field("anything", self.anything);
  }
};

constexpr const char* kText =
    R"({"name":"a","curve":[[0,1.5],[1,null]],"sizes":{"8":{"count":2,"value":0.1},)"
    R"("32":{"count":3,"value":-1e-300}},"extra":0.25,"anything":{"b":[1]}})";

std::string complaint(const std::string& text) {
  return message_of([&] { read_as<Outer>(Json::parse(text), "file"); });
}

std::string with(std::string text, const std::string& part, const std::string& other) {
  return text.replace(text.find(part), part.size(), other);
}

TEST(Record, ComesBackAsItWasWritten) {
  const auto read = read_as<Outer>(Json::parse(kText), "file");
  EXPECT_EQ(read.curve[0], (std::pair<int64_t, double>(0, 1.5)));
  EXPECT_TRUE(std::isnan(read.curve[1].second));
  ASSERT_EQ(read.sizes.size(), 2U);
  EXPECT_EQ(read.sizes[1].name, "32");  // not sorted
  EXPECT_EQ(read.sizes[1].value.value, -1e-300);
  EXPECT_EQ(read.extra, 0.25);
  EXPECT_EQ(as_json(read).dump(), kText);
}

TEST(Record, WhatIsNotThereIsLeftOut) {
  const Outer bare{.name = "a", .curve = {}, .sizes = {}, .extra = {}, .anything = nullptr};
  const std::string text = as_json(bare).dump();
  EXPECT_EQ(text, R"({"name":"a","curve":[],"anything":null})");
  EXPECT_FALSE(read_as<Outer>(Json::parse(text), "file").extra);
}

TEST(Record, RefusesWhatItIsNot) {
  EXPECT_EQ(complaint(with(kText, R"("name":"a",)", "")), "file has no \"name\"");
  EXPECT_EQ(complaint(with(kText, R"("a")", "1")),
            "file: name: number found where a text is expected");
  EXPECT_EQ(complaint(with(kText, "[1,null]", "[1]")),
            "file: curve: array found where a pair is expected");
  EXPECT_EQ(complaint(with(kText, R"("count":3)", R"("count":3.5)")),
            "file: sizes: 32: count: number found where a whole number is expected");
  EXPECT_EQ(complaint(with(kText, "-1e-300", "true")),
            "file: sizes: 32: value: boolean found where a number is expected");
  EXPECT_EQ(complaint("[]"), "file: array found where an object is expected");
}

TEST(ByName, AnEntryIsMadeOnce) {
  ByName<int64_t> values;
  entry(values, "b") = 1;
  entry(values, "a") = 2;
  entry(values, "b") = 3;
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0].value, 3);
}

}  // namespace
}  // namespace tempera::study
