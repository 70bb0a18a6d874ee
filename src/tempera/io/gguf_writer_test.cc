#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"
#include "tempera/io/testing_gguf.h"

namespace tempera::io {
namespace {

GgufMetadata all_types() {
  GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  metadata.add("u8", uint8_t{255});
  metadata.add("i8", int8_t{-128});
  metadata.add("u16", uint16_t{65'535});
  metadata.add("i16", int16_t{-32'768});
  metadata.add("u32", uint32_t{5});
  metadata.add("i32", int32_t{-5});
  metadata.add("f32", 0.5F);
  metadata.add("bool", true);
  metadata.add("u64", std::numeric_limits<uint64_t>::max());
  metadata.add("i64", std::numeric_limits<int64_t>::min());
  metadata.add("f64", 0.1);
  metadata.add("texts", GgufArray(std::vector<std::string>{"", "a", std::string("\0b", 2)}));
  metadata.add("bools", GgufArray(std::vector<bool>{true, false}));
  metadata.add("i32s", GgufArray(std::vector<int32_t>{1, -1}));
  metadata.add("f64s", GgufArray(std::vector<double>{}));
  return metadata;
}

std::string complaint(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  const TempFolder folder;
  try {
    write_gguf(folder.path() / "a.gguf", metadata, tensors);
  } catch (const Error& error) {
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return error.what();
  }
  return "";
}

TEST(GgufWriterTest, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "a.gguf";
  const std::string data(200, 'x');
  const auto bytes = bytes_of(data);
  const std::vector<GgufTensor> tensors{{"z", GgmlType::kF32, {2, 3}, bytes.first(24)},
                                        {"a", GgmlType::kQ8_0, {1, 2, 32}, bytes.subspan(24, 68)},
                                        {"empty", GgmlType::kBF16, {0, 5}, {}},
                                        {"scalar", GgmlType::kF16, {}, bytes.first(2)}};
  const GgufMetadata metadata = all_types();
  write_gguf(path, metadata, tensors);
  const Gguf file(path);
  EXPECT_EQ(file.metadata().entries(), metadata.entries());
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const GgufTensor& tensor : tensors) {
    const GgufTensor& found = file.at(tensor.name);
    EXPECT_EQ(found.type, tensor.type);
    EXPECT_EQ(found.shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(found.bytes, tensor.bytes)) << tensor.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found.bytes.data()) % 32, 0U);
  }
  EXPECT_EQ(std::filesystem::file_size(path) % 32, 0U);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_THROW(file.at("none"), Error);
}

TEST(GgufWriterTest, StreamsTensorsOneByOne) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "a.gguf";
  const std::vector<GgufTensor> tensors{{"a", GgmlType::kI8, {3}, {}},
                                        {"b", GgmlType::kI8, {40}, {}}};
  std::string buffer;
  GgufMetadata metadata;
  metadata.add("general.alignment", uint32_t{8});
  write_gguf(path, metadata, tensors, [&](size_t i) {
    buffer = i == 0 ? "aaa" : std::string(40, 'b');
    return bytes_of(buffer);
  });
  const Gguf file(path);
  EXPECT_TRUE(std::ranges::equal(file.at("a").bytes, bytes_of("aaa")));
  EXPECT_TRUE(std::ranges::equal(file.at("b").bytes, bytes_of(std::string(40, 'b'))));
  EXPECT_EQ(file.at("b").bytes.data() - file.at("a").bytes.data(), 8);
}

TEST(GgufWriterTest, RefusesWhatNoReaderTakes) {
  const std::string data(64, 'x');
  const auto bytes = bytes_of(data);
  const GgufTensor a{"a", GgmlType::kF32, {2}, bytes.first(8)};
  EXPECT_EQ(complaint({}, {a}), "");
  EXPECT_EQ(complaint({}, {a, a}), "GGUF: two tensors named \"a\"");
  EXPECT_NE(complaint({}, {{std::string(64, 'n'), GgmlType::kF32, {2}, bytes.first(8)}})
                .find("64 bytes; readers take at most 63"),
            std::string::npos);
  EXPECT_EQ(complaint({}, {{"a", GgmlType::kF32, {1, 1, 1, 1, 1}, bytes.first(4)}}),
            "GGUF: tensor \"a\" has 5 dimensions; at most 4 expected");
  EXPECT_EQ(complaint({}, {{"a", GgmlType::kF32, {2}, bytes.first(4)}}),
            "GGUF: tensor \"a\" has 4 bytes; its shape [2] and type F32 need 8");
  EXPECT_EQ(complaint({}, {{"a", GgmlType::kQ8_0, {2, 17}, bytes.first(34)}}),
            "GGUF: tensor \"a\": rows of 17 elements; Q8_0 needs a multiple of 32");
  EXPECT_EQ(complaint({}, {{"a", GgmlType::kF32, {-1}, {}}}),
            "GGUF: tensor \"a\": a dimension of -1 in the shape [-1]");
  GgufMetadata alignment;
  alignment.add("general.alignment", uint32_t{3});
  EXPECT_EQ(complaint(alignment, {a}), "GGUF: general.alignment is 3; a power of two expected");
  GgufMetadata long_key;
  long_key.add(std::string(65'536, 'k'), true);
  EXPECT_NE(complaint(long_key, {a}), "");
}

}  // namespace
}  // namespace tempera::io
