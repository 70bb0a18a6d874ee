#include "tempera/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/io/safetensors_header.h"

namespace tempera::io {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + rest;
}

std::string file_of(const std::string& json, size_t data_bytes) {
  return with_length(json.size(), json + std::string(data_bytes, 'd'));
}

// The message about a file, empty when it is accepted.
std::string safetensors_complaint(const std::string& file) {
  return message_of([&] { parse_safetensors(bytes_of(file), "f.safetensors"); });
}

std::string safetensors_complaint(const std::string& json, size_t data_bytes) {
  return safetensors_complaint(file_of(json, data_bytes));
}

testing::AssertionResult safetensors_says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos && message.starts_with("f.safetensors: "))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const std::string file =
      file_of("{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}," +
                  tensor("b", "F32", "[1,2]", "[2,10]") + "," + tensor("a", "BF16", "[]", "[0,2]") +
                  "," + tensor("empty", "I64", "[3,0]", "[2,2]") + "}   ",
              10);
  const SafetensorsContents contents = parse_safetensors(bytes_of(file), "f");
  ASSERT_EQ(contents.tensors.size(), 3u);
  EXPECT_EQ(contents.tensors[0].name, "a");
  EXPECT_EQ(contents.tensors[0].dtype, DType::kBF16);
  EXPECT_TRUE(contents.tensors[0].shape.empty());
  EXPECT_EQ(contents.tensors[0].bytes.size(), 2u);
  EXPECT_EQ(contents.tensors[1].name, "b");
  EXPECT_EQ(contents.tensors[1].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(contents.tensors[1].bytes.data(), bytes_of(file).data() + file.size() - 8);
  EXPECT_EQ(contents.tensors[2].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_TRUE(contents.tensors[2].bytes.empty());
  EXPECT_EQ(contents.metadata, (Metadata{{"format", "pt"}, {"k", "v"}}));
  EXPECT_EQ(safetensors_complaint("{}", 0), "");
}

TEST(SafetensorsTest, RefusesBadLengths) {
  EXPECT_TRUE(safetensors_says(safetensors_complaint(std::string(7, '\0')),
                               "7 bytes; a safetensors file has at least 8"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint(std::string()), "0 bytes"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint(with_length(100'000'001, "{}")),
                               "at most 100000000 allowed"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint(with_length(std::numeric_limits<uint64_t>::max(), "{}")),
      "at most 100000000 allowed"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint(with_length(3, "{}")), "only 2 follow"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint(with_length(0, "{}")), "does not begin with '{'"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint(" {}", 0), "does not begin with '{'"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("\xef\xbb\xbf{}", 0), "does not begin with '{'"));
}

TEST(SafetensorsTest, RefusesBadJson) {
  for (const char* json : {"{", "{}x", "{\"a\"", "{,}", "{}{}", "{\"a\\q\":1}", "{\"\xff\":1}"})
    EXPECT_TRUE(safetensors_says(safetensors_complaint(json, 0), "not valid JSON")) << json;
  EXPECT_TRUE(safetensors_says(safetensors_complaint(std::string("{}\0", 3), 0), "not valid JSON"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint(std::string("{}\0{\"a\":1}", 10), 0),
                               "not valid JSON: it holds a zero byte"));
}

TEST(SafetensorsTest, RefusesOtherStructure) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a":1})", "a number where an object is expected, at \"a\""},
      {R"({"a":[]})", "an array where an object is expected"},
      {R"({"a":null})", "null where an object is expected"},
      {R"({"__metadata__":[]})", "an array where an object is expected"},
      {R"({"__metadata__":{"a":1}})", "a number where a string of metadata is expected"},
      {R"({"__metadata__":{"a":{}}})", "an object where a string of metadata is expected"},
      {R"({"a":{"dtype":true}})", "a boolean where a dtype's name is expected"},
      {R"({"a":{"dtype":[]}})", "an array where a dtype's name is expected"},
      {R"({"a":{"shape":"x"}})", "a string where an array is expected"},
      {R"({"a":{"shape":[[]]}})", "an array where a whole number from zero is expected"},
      {R"({"a":{"shape":[-1]}})", "a negative number where a whole number"},
      {R"({"a":{"shape":[1.0]}})", "no 64-bit integer"},
      {R"({"a":{"shape":[18446744073709551616]}})", "no 64-bit integer"},
      {R"({"a":{"data_offsets":{}}})", "an object where an array is expected"},
      {R"({"a":{"extra":1}})", "unknown entry \"extra\""}};
  for (const auto& [json, words] : cases)
    EXPECT_TRUE(safetensors_says(safetensors_complaint(json, 0), words)) << json;
  std::string deep = "{\"a\":{\"shape\":";
  deep.append(1'000'000, '[');
  EXPECT_TRUE(safetensors_says(safetensors_complaint(deep, 0), "an array where a whole number"));
}

TEST(SafetensorsTest, RefusesMissingAndRepeatedEntries) {
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{\"a\":{}}", 0), "\"a\" has no dtype"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
      "\"a\" has no shape"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4),
                               "\"a\" has no data_offsets"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4),
                       "two entries \"dtype\""));
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{\"a\":{\"shape\":[],\"shape\":[]}}", 4),
                               "two entries \"shape\""));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{\"a\":{\"data_offsets\":[0,4],\"data_offsets\":[0,4]}}", 4),
      "two entries \"data_offsets\""));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "F32", "[]", "[0]") + "}", 4),
                       "has 1 data_offsets, two expected"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "F32", "[]", "[0,4,8]") + "}", 4),
                       "more than two data_offsets"));
}

TEST(SafetensorsTest, RefusesDuplicateNames) {
  const std::string a = tensor("a", "U8", "[1]", "[0,1]");
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{" + a + "," + a + "}", 1),
                               "the name \"a\" appears twice"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + a + "," + tensor("\\u0061", "U8", "[1]", "[1,2]") + "}", 2),
      "appears twice"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
                       "\"__metadata__\" appears twice"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0),
                       "metadata key \"k\" appears twice"));
}

TEST(SafetensorsTest, RefusesUnknownDTypes) {
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "F31", "[1]", "[0,4]") + "}", 4),
                       "unknown dtype \"F31\"; known are BOOL, U8"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "f32", "[1]", "[0,4]") + "}", 4),
                       "unknown dtype \"f32\""));
}

TEST(SafetensorsTest, RefusesSizesThatDoNotAgree) {
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4),
                       "has 4 bytes, its shape and dtype F32 need 8"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + tensor("a", "F32", "[0]", "[0,4]") + "}", 4), "need 0"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("a", "F32", "[]", "[4,0]") + "}", 4),
                       "ends at 0, before its begin at 4"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + tensor("a", "F32", "[4611686018427387904,4]", "[0,0]") + "}", 0),
      "overflows 64 bits"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + tensor("a", "F32", "[9223372036854775808]", "[0,0]") + "}", 0),
      "which no memory can hold"));
  std::string many = "1";
  for (size_t i = 0; i < kMostDimensions; ++i) many += ",1";
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + tensor("a", "U8", "[" + many + "]", "[0,1]") + "}", 1),
      "more than 64 dimensions"));
  EXPECT_EQ(
      safetensors_complaint("{" + tensor("a", "U8", "[" + many.substr(2) + "]", "[0,1]") + "}", 1),
      "");
}

TEST(SafetensorsTest, RefusesOverlapsHolesAndLooseEnds) {
  const std::string a = tensor("a", "U8", "[4]", "[0,4]");
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + a + "," + tensor("b", "U8", "[4]", "[2,6]") + "}", 6),
      "tensor \"b\" overlaps \"a\": it begins at 2, the other ends at 4"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + a + "," + tensor("b", "U8", "[4]", "[0,4]") + "}", 4),
      "overlaps"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + a + "," + tensor("b", "U8", "[0]", "[2,2]") + "}", 4),
      "overlaps"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint("{" + a + "," + tensor("b", "U8", "[1]", "[7,8]") + "}", 8),
      "a hole of 3 bytes before tensor \"b\""));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + tensor("b", "U8", "[1]", "[1,2]") + "}", 2),
                       "a hole of 1 bytes before tensor \"b\""));
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{" + a + "}", 3),
                               "cut short: its tensors need 4 bytes, 3 are there"));
  EXPECT_TRUE(
      safetensors_says(safetensors_complaint("{" + a + "}", 5), "1 bytes follow the last tensor"));
  EXPECT_TRUE(safetensors_says(safetensors_complaint("{}", 1), "1 bytes follow the last tensor"));
  EXPECT_TRUE(safetensors_says(
      safetensors_complaint(
          "{" + tensor("a", "U8", "[0]", "[18446744073709551615,18446744073709551615]") + "}", 0),
      "a hole"));
}

TEST(DTypeTest, NamesAndSizesRoundTrip) {
  size_t previous = 0;
  for (size_t i = 0; i <= static_cast<size_t>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_size(dtype), previous);
    EXPECT_NE(dtype_names().find(dtype_name(dtype)), std::string_view::npos);
    previous = dtype_size(dtype);
  }
  EXPECT_EQ(dtype_size(DType::kBF16), 2u);
  EXPECT_EQ(find_dtype(""), std::nullopt);
}

// Flips and cuts at every place: never more than an error.
TEST(SafetensorsTest, SurvivesDamage) {
  const std::string good =
      file_of("{\"__metadata__\":{\"a\":\"b\"}," + tensor("a", "F16", "[2]", "[0,4]") + "," +
                  tensor("b", "U8", "[1]", "[4,5]") + "}",
              5);
  ASSERT_EQ(safetensors_complaint(good), "");
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_NE(safetensors_complaint(good.substr(0, i)), "") << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
      refused += safetensors_complaint(bad).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, good.size() * 4);
}

}  // namespace
}  // namespace tempera::io
