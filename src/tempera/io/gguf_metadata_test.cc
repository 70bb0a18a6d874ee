#include "tempera/io/gguf_metadata.h"

#include <gtest/gtest.h>

#include <limits>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"
#include "tempera/io/testing_gguf.h"

namespace tempera::io {
namespace {

template <class T>
std::string complaint(const GgufMetadata& metadata, std::string_view key) {
  try {
    metadata.get<T>(key);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GgufMetadataTest, ReadsEveryType) {
  const std::string values[] = {
      entry("u8", 0, number<uint8_t>(200)),
      entry("i8", 1, number<int8_t>(-100)),
      entry("u16", 2, number<uint16_t>(60'000)),
      entry("i16", 3, number<int16_t>(-30'000)),
      entry("u32", 4, number(4'000'000'000U)),
      entry("i32", 5, number(-2'000'000'000)),
      entry("f32", 6, number(0.1F)),
      entry("bool", 7, number<uint8_t>(1)),
      entry("text", 8, text("caf\xc3\xa9")),
      entry("u64", 10, number<uint64_t>(1ULL << 40)),
      entry("i64", 11, number(INT64_MIN)),
      entry("f64", 12, number(0.1)),
  };
  HandMadeGguf file;
  for (const std::string& value : values) {
    file.keys += value;
    ++file.key_count;
    // The same value as an array of one.
    const size_t key_bytes = 8 + static_cast<size_t>(value[0]);
    const std::string key = value.substr(8, key_bytes - 8);
    file.keys +=
        entry(key + "s", 9,
              value.substr(key_bytes, 4) + number<uint64_t>(1) + value.substr(key_bytes + 4));
    ++file.key_count;
  }
  const std::string bytes = file.bytes();
  const GgufMetadata metadata = parse_gguf(bytes_of(bytes), "f").metadata;

  const auto expect_integer = [&](const std::string& key, int64_t expected) {
    EXPECT_EQ(metadata.get<int64_t>(key), expected) << key;
    EXPECT_EQ(metadata.get<std::vector<int64_t>>(key + "s"), std::vector{expected}) << key;
  };
  expect_integer("u8", 200);
  expect_integer("i8", -100);
  expect_integer("u16", 60'000);
  expect_integer("i16", -30'000);
  expect_integer("u32", 4'000'000'000);
  expect_integer("i32", -2'000'000'000);
  expect_integer("u64", int64_t{1} << 40);
  expect_integer("i64", INT64_MIN);
  EXPECT_EQ(metadata.get<double>("f32"), static_cast<double>(0.1F));
  EXPECT_EQ(metadata.get<std::vector<double>>("f32s"), std::vector{static_cast<double>(0.1F)});
  EXPECT_EQ(metadata.get<double>("f64"), 0.1);
  EXPECT_EQ(metadata.get<std::vector<double>>("f64s"), std::vector{0.1});
  EXPECT_TRUE(metadata.get<bool>("bool"));
  EXPECT_EQ(metadata.get<std::vector<bool>>("bools"), std::vector{true});
  EXPECT_EQ(metadata.get<std::string>("text"), "caf\xc3\xa9");
  EXPECT_EQ(metadata.get<std::vector<std::string>>("texts"),
            std::vector<std::string>{"caf\xc3\xa9"});
  EXPECT_EQ(metadata.entries().front().first, "u8");
  EXPECT_EQ(metadata.entries().back().first, "f64s");
}

TEST(GgufMetadataTest, NamesKeyTypeAndExpectation) {
  GgufMetadata metadata("f.gguf");
  metadata.add("llama.block_count", uint32_t{30});
  metadata.add("general.name", "x");
  metadata.add("tokens", GgufArray(std::vector<std::string>{"a", "b"}));
  metadata.add("scores", GgufArray(std::vector<float>{1}));
  metadata.add("big", std::numeric_limits<uint64_t>::max());
  metadata.add("bigs", GgufArray(std::vector<uint64_t>{1, uint64_t{1} << 63}));
  metadata.add("flag", true);
  EXPECT_EQ(complaint<std::string>(metadata, "llama.block_count"),
            "f.gguf: the metadata key \"llama.block_count\" has the type uint32; text expected");
  EXPECT_EQ(complaint<double>(metadata, "llama.block_count"),
            "f.gguf: the metadata key \"llama.block_count\" has the type uint32; float expected");
  EXPECT_EQ(complaint<std::vector<double>>(metadata, "tokens"),
            "f.gguf: the metadata key \"tokens\" has the type array of 2 text; an array of float "
            "expected");
  EXPECT_EQ(complaint<int64_t>(metadata, "big"),
            "f.gguf: the metadata key \"big\" has the type uint64; integer of at most 63 bits "
            "expected");
  for (const char* key : {"bigs", "tokens", "scores", "flag", "llama.block_count"})
    EXPECT_NE(complaint<std::vector<int64_t>>(metadata, key), "") << key;
  for (const char* key : {"flag", "scores", "general.name"})
    EXPECT_NE(complaint<int64_t>(metadata, key), "") << key;
  for (const char* key : {"tokens", "general.name", "llama.block_count"})
    EXPECT_NE(complaint<bool>(metadata, key), "") << key;
  EXPECT_NE(complaint<std::vector<std::string>>(metadata, "scores"), "");
  EXPECT_NE(complaint<std::vector<bool>>(metadata, "flag"), "");
  EXPECT_NE(complaint<std::string>(metadata, "tokens"), "");
  EXPECT_EQ(complaint<int64_t>(metadata, "llama.block_cuont"),
            "f.gguf: no metadata key \"llama.block_cuont\"; did you mean 'llama.block_count'?");
}

TEST(GgufMetadataTest, FallsBackOnlyWhereTheKeyIsMissing) {
  GgufMetadata metadata;
  metadata.add("a", int8_t{5});
  EXPECT_EQ(metadata.get_or<int64_t>("a", 7), 5);
  EXPECT_EQ(metadata.get_or<int64_t>("b", 7), 7);
  EXPECT_EQ(metadata.get_or<std::string>("b", "none"), "none");
  EXPECT_THROW(metadata.get_or<bool>("a", false), Error);
  EXPECT_EQ(metadata.find("b"), nullptr);
  EXPECT_THROW(metadata.add("a", true), Error);
}

}  // namespace
}  // namespace tempera::io
