#include "tempera/io/gguf.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/io/testing_gguf.h"

namespace tempera::io {
namespace {

constexpr uint32_t kArray = 9, kString = 8, kUint32 = 4;
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

// The message about a file, empty when it is accepted.
std::string gguf_complaint(const std::string& file) {
  return message_of([&] { parse_gguf(bytes_of(file), "f.gguf"); });
}

std::string gguf_complaint(const HandMadeGguf& file) { return gguf_complaint(file.bytes()); }

std::string complaint_of_keys(const std::string& keys, uint64_t count = 1) {
  return gguf_complaint(HandMadeGguf{.key_count = count, .keys = keys});
}

std::string complaint_of_tensors(const std::string& tensors, uint64_t data, uint64_t count = 1) {
  return gguf_complaint(
      HandMadeGguf{.tensor_count = count, .tensors = tensors, .data_bytes = data});
}

testing::AssertionResult gguf_says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos && message.starts_with("f.gguf: "))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
}

HandMadeGguf good_file() {
  return {.tensor_count = 3,
          .key_count = 2,
          .keys = entry("general.architecture", kString, text("llama")) +
                  entry("llama.block_count", kUint32, number<uint32_t>(30)),
          .tensors = tensor_entry("b", {32, 2}, 8, 32) + tensor_entry("a", {3}, 0, 0) +
                     tensor_entry("empty", {4, 0}, 1, 128),
          .data_bytes = 32 + 68 + 28};
}

TEST(GgufTest, ReadsTensors) {
  for (const uint32_t version : {2U, 3U}) {
    HandMadeGguf hand_made = good_file();
    hand_made.version = version;
    const std::string file = hand_made.bytes();
    const GgufContents contents = parse_gguf(bytes_of(file), "f");
    ASSERT_EQ(contents.tensors.size(), 3U);
    const GgufTensor &a = contents.tensors[0], &b = contents.tensors[1];
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.type, GgmlType::kF32);
    EXPECT_EQ(a.shape, (std::vector<int64_t>{3}));
    EXPECT_EQ(a.bytes.size(), 12U);
    EXPECT_EQ(a.bytes.data(), bytes_of(file).data() + file.size() - 128);
    EXPECT_EQ(b.type, GgmlType::kQ8_0);
    EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(b.bytes.size(), 68U);
    EXPECT_EQ(b.bytes.data(), a.bytes.data() + 32);
    EXPECT_EQ(contents.tensors[2].shape, (std::vector<int64_t>{0, 4}));
    EXPECT_TRUE(contents.tensors[2].bytes.empty());
    EXPECT_EQ(contents.metadata.get<int64_t>("llama.block_count"), 30);
  }
}

TEST(GgufTest, ReadsFilesWithoutTensorsAndWithoutPadding) {
  EXPECT_EQ(gguf_complaint(HandMadeGguf{}), "");
  EXPECT_EQ(complaint_of_keys(entry("k", kUint32, number<uint32_t>(1))), "");
  EXPECT_EQ(complaint_of_tensors(tensor_entry("a", {3}, 0, 0), 12), "");
  EXPECT_EQ(complaint_of_tensors(tensor_entry("scalar", {}, 0, 0), 4), "");
}

TEST(GgufTest, RefusesOtherFiles) {
  EXPECT_TRUE(gguf_says(gguf_complaint(std::string()), "0 bytes; a GGUF file has at least 24"));
  EXPECT_TRUE(gguf_says(gguf_complaint(std::string(23, 'x')), "23 bytes"));
  EXPECT_TRUE(gguf_says(gguf_complaint(std::string(24, 'x')), "does not begin with \"GGUF\""));
  EXPECT_TRUE(
      gguf_says(gguf_complaint(HandMadeGguf{.version = 1}), "GGUF version 1; 2 or 3 expected"));
  EXPECT_TRUE(
      gguf_says(gguf_complaint(HandMadeGguf{.version = 0}), "GGUF version 0; 2 or 3 expected"));
  EXPECT_TRUE(
      gguf_says(gguf_complaint(HandMadeGguf{.version = 4}), "GGUF version 4; 2 or 3 expected"));
  EXPECT_TRUE(
      gguf_says(gguf_complaint(HandMadeGguf{.version = 3U << 24}), "the file is big-endian"));
}

TEST(GgufTest, RefusesCountsThatCannotBe) {
  EXPECT_TRUE(gguf_says(gguf_complaint(HandMadeGguf{.tensor_count = kHuge}),
                        "18446744073709551615 tensors announced; at most 1000000 expected"));
  EXPECT_TRUE(
      gguf_says(gguf_complaint(HandMadeGguf{.key_count = kHuge}), "at most 1000000 expected"));
  EXPECT_TRUE(gguf_says(gguf_complaint(HandMadeGguf{.tensor_count = 1}),
                        "1 tensors announced; the 8 bytes"));
  EXPECT_TRUE(gguf_says(gguf_complaint(HandMadeGguf{.key_count = 1'000'000}), "cannot hold them"));
  EXPECT_TRUE(
      gguf_says(complaint_of_keys(entry("k", kString, text("a longer value")), 2), "cut short"));
}

TEST(GgufTest, RefusesBadMetadata) {
  const std::string one = entry("k", kUint32, number<uint32_t>(1));
  EXPECT_TRUE(gguf_says(complaint_of_keys(one + one, 2), "the metadata key \"k\" appears twice"));
  EXPECT_TRUE(gguf_says(complaint_of_keys(entry("k", 13, number<uint64_t>(1))),
                        "metadata key \"k\" has the unknown type 13"));
  EXPECT_TRUE(gguf_says(complaint_of_keys(entry("k", 7, number<uint8_t>(2))),
                        "metadata key \"k\" is the boolean 2; 0 or 1 expected"));
  EXPECT_TRUE(
      gguf_says(complaint_of_keys(number(kHuge) + std::string(20, 'k')),
                "a metadata key of 18446744073709551615 bytes at offset 24; at most 65535"));
  EXPECT_TRUE(gguf_says(complaint_of_keys(number<uint64_t>(100) + std::string(20, 'k')),
                        "a metadata key of 100 bytes at offset 32, only 20 are left"));
  EXPECT_TRUE(
      gguf_says(complaint_of_keys(entry("k", kString, number(kHuge))), "at most 1073741824"));
  EXPECT_TRUE(
      gguf_says(complaint_of_keys(entry("k", kString, number<uint64_t>(1))), "only 0 are left"));
  EXPECT_TRUE(
      gguf_says(complaint_of_keys(entry("k", 10, number<uint32_t>(1))), "cut short or damaged"));
}

TEST(GgufTest, RefusesBadArrays) {
  const auto array = [](uint32_t type, uint64_t count, const std::string& items) {
    return complaint_of_keys(entry("k", kArray, number(type) + number(count) + items));
  };
  EXPECT_EQ(array(kUint32, 2, std::string(8, 'i')), "");
  EXPECT_TRUE(gguf_says(array(kUint32, 3, std::string(8, 'i')),
                        "3 items of metadata key \"k\" announced; the 8 bytes that follow"));
  EXPECT_TRUE(gguf_says(array(kUint32, kHuge / 4 + 1, std::string(8, 'i')), "at most 268435456"));
  EXPECT_TRUE(gguf_says(array(0, kHuge, std::string(8, 'i')), "at most 1073741824"));
  EXPECT_TRUE(
      gguf_says(array(kString, 2, text("a") + number<uint64_t>(2) + "b"), "only 1 are left"));
  EXPECT_TRUE(
      gguf_says(array(kArray, 1, number(kUint32) + number<uint64_t>(0)), "array of arrays"));
  EXPECT_TRUE(gguf_says(array(kArray, 0, ""), "array of arrays"));
  EXPECT_TRUE(gguf_says(array(13, 0, ""), "an array of the unknown type 13"));
  EXPECT_TRUE(gguf_says(array(7, 2, std::string("\1\3", 2)), "is the boolean 3"));
}

TEST(GgufTest, RefusesBadAlignments) {
  const auto with = [](uint32_t type, const std::string& value, uint64_t offset,
                       uint64_t alignment) {
    return gguf_complaint(
        {.tensor_count = 2,
         .key_count = 1,
         .keys = entry("general.alignment", type, value),
         .tensors = tensor_entry("a", {1}, 0, 0) + tensor_entry("b", {1}, 0, offset),
         .data_bytes = offset + 4,
         .alignment = alignment});
  };
  EXPECT_EQ(with(kUint32, number<uint32_t>(64), 64, 64), "");
  EXPECT_EQ(with(kUint32, number<uint32_t>(8), 8, 8), "");
  EXPECT_TRUE(
      gguf_says(with(kUint32, number<uint32_t>(0), 32, 32), "is 0; a power of two expected"));
  EXPECT_TRUE(gguf_says(with(kUint32, number<uint32_t>(48), 48, 48), "is 48; a power of two"));
  EXPECT_TRUE(
      gguf_says(with(10, number<uint64_t>(32), 32, 32), "has the type uint64; uint32 expected"));
  EXPECT_TRUE(gguf_says(with(kUint32, number<uint32_t>(1U << 31), 64, 64), "no multiple of"));
  EXPECT_TRUE(gguf_says(with(kUint32, number<uint32_t>(64), 32, 64),
                        "tensor \"b\" is at offset 32, no multiple of the alignment 64"));
}

TEST(GgufTest, RefusesBadTensors) {
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {1, 1, 1, 1, 1}, 0, 0), 4),
                        "tensor \"a\" has 5 dimensions; at most 4 expected"));
  EXPECT_EQ(complaint_of_tensors(tensor_entry("a", {1, 1, 1, 1}, 0, 0), 4), "");
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {1}, 4, 0), 4), "the unknown type 4"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {1}, 1000, 0), 4), "unknown type 1000"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {33}, 8, 0), 34),
                        "tensor \"a\": rows of 33 elements; Q8_0 needs a multiple of 32"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {16, 2}, 8, 0), 34), "rows of 16"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {}, 8, 0), 34), "rows of 1 elements"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(number<uint64_t>(65'536) + std::string(70'000, 'n'), 0),
                "a tensor's name of 65536 bytes"));
}

TEST(GgufTest, RefusesSizesThatOverflow) {
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {kHuge}, 0, 0), 4),
                        "a dimension of 18446744073709551615, which no memory can hold"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {1ULL << 62, 4}, 24, 0), 4),
                        "the size of the shape [4, 4611686018427387904] does not fit"));
  for (const uint64_t size : {1ULL << 61, 1ULL << 62})
    EXPECT_TRUE(
        gguf_says(complaint_of_tensors(tensor_entry("a", {size}, 0, 0), 4), "does not fit"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(
                    tensor_entry("a", {1ULL << 33, 1ULL << 33, 1ULL << 33, 1ULL << 33}, 24, 0), 4),
                "does not fit"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {0, 1ULL << 33, 1ULL << 33}, 24, 0), 0),
                "the size of the shape [8589934592, 8589934592, 0] does not fit"));
  // Fewer bytes than elements: the number of elements overflows first.
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {1ULL << 62, 2}, 12, 0), 4), "63 bits"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(tensor_entry("a", {64}, 24, kHuge - 31), 4),
                        "at offset 18446744073709551584 with 64 bytes ends beyond 64 bits"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("a", {4}, 24, kHuge - 31), 4), "a hole of"));
}

TEST(GgufTest, RefusesDuplicatesOverlapsHolesAndLooseEnds) {
  const std::string a = tensor_entry("a", {40}, 24, 0);
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a + tensor_entry("a", {4}, 24, 64), 68, 2),
                        "two tensors named \"a\""));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a + tensor_entry("b", {4}, 24, 32), 68, 2),
                        "tensor \"b\" overlaps \"a\": it begins at 32, the other ends at 40"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(a + tensor_entry("b", {40}, 24, 0), 68, 2), "overlaps"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(a + tensor_entry("b", {0}, 24, 32), 68, 2), "overlaps"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a + tensor_entry("b", {4}, 24, 96), 100, 2),
                        "a hole of 56 bytes before tensor \"b\""));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(tensor_entry("b", {4}, 24, 32), 36), "a hole of 32 bytes"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a + tensor_entry("b", {4}, 24, 65), 69, 2),
                        "is at offset 65, no multiple of the alignment 32"));
  EXPECT_TRUE(
      gguf_says(complaint_of_tensors(a, 39), "cut short: its tensors need 40 bytes, 39 are"));
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a, 0), "cut short: its tensors need 40 bytes, 0 are"));
  EXPECT_EQ(complaint_of_tensors(a, 71), "");
  EXPECT_TRUE(gguf_says(complaint_of_tensors(a, 72), "32 bytes follow the last tensor"));
}

// Flips and cuts at every place: never more than an error.
TEST(GgufTest, SurvivesDamage) {
  const std::string good = good_file().bytes();
  ASSERT_EQ(gguf_complaint(good), "");
  size_t refused = 0;
  const size_t header = good.size() - 128;
  for (size_t i = 0; i < header; ++i) {
    EXPECT_NE(gguf_complaint(good.substr(0, i)), "") << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
      refused += gguf_complaint(bad).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, header * 4);
}

}  // namespace
}  // namespace tempera::io
