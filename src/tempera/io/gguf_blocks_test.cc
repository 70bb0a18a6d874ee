#include "tempera/io/gguf_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/io/float_bits.h"
#include "tempera/io/testing_gguf.h"

namespace tempera::io {
namespace {

std::string half(float value) { return number(half_of_float(value)); }

// The elements of one row of blocks.
std::vector<float> floats(GgmlType type, const std::string& blocks) {
  const GgmlTypeInfo& info = info_of(type);
  const size_t columns = blocks.size() / info.block_bytes * info.block_elements;
  std::vector<float> out(columns);
  dequantize_rows({"t", type, {static_cast<int64_t>(columns)}, bytes_of(blocks)}, 0, 1,
                  std::span<float>(out));
  return out;
}

// Bytes 0x10, 0x32, ..., 0xfe, 0x10, ...: the low half counts 0, 2, .. 14, the high half 1, 3,
// .. 15.
std::string nibbles(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    const size_t low = 2 * (i % 8);
    out += static_cast<char>(low | (low + 1) << 4);
  }
  return out;
}

float low_nibble(size_t i) { return static_cast<float>(2 * (i % 8)); }
float high_nibble(size_t i) { return low_nibble(i) + 1; }

// Values by hand, from the layouts.
TEST(GgufBlocksTest, SmallBlocks) {
  const std::string fifths("\x03\x00\x01\x80", 4);  // of elements 0, 1, 16 and 31
  const auto fifth = [](size_t i) { return i <= 1 || i == 16 || i == 31 ? 16.0F : 0.0F; };
  const auto q4_0 = floats(GgmlType::kQ4_0, half(0.5F) + nibbles(16));
  const auto q4_1 = floats(GgmlType::kQ4_1, half(0.5F) + half(-3) + nibbles(16));
  const auto q5_0 = floats(GgmlType::kQ5_0, half(-2) + fifths + nibbles(16));
  const auto q5_1 = floats(GgmlType::kQ5_1, half(-2) + half(7) + fifths + nibbles(16));
  for (size_t i = 0; i < 32; ++i) {
    const float q = i < 16 ? low_nibble(i) : high_nibble(i - 16);
    EXPECT_EQ(q4_0[i], 0.5F * (q - 8)) << i;
    EXPECT_EQ(q4_1[i], 0.5F * q - 3) << i;
    EXPECT_EQ(q5_0[i], -2 * (q + fifth(i) - 16)) << i;
    EXPECT_EQ(q5_1[i], -2 * (q + fifth(i)) + 7) << i;
  }
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(i * 8 - 128);
  const auto q8_0 = floats(GgmlType::kQ8_0, half(0.25F) + bytes);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(q8_0[i], 2 * static_cast<float>(i) - 32) << i;
}

TEST(GgufBlocksTest, LargeBlocksWithMinima) {
  // Groups 0-3: scales 1-4, minima 5-8. Groups 4-7: scales 1 + 16, 2 + 32, 3 + 48, 4 and minima 5,
  // 6 + 16, 7 + 32, 8 + 48.
  const std::string scales("\x41\x82\xc3\x04\x05\x46\x87\xc8\x51\x62\x73\x84", 12);
  const float scale[] = {1, 2, 3, 4, 17, 34, 51, 4}, minimum[] = {5, 6, 7, 8, 5, 22, 39, 56};
  const auto q4_k = floats(GgmlType::kQ4_K, half(0.5F) + half(2) + scales + nibbles(128));
  std::string fifths(32, '\0');
  fifths[3] = static_cast<char>(0xa5);  // element 3 of groups 0, 2, 5 and 7
  const auto q5_k = floats(GgmlType::kQ5_K, half(0.5F) + half(2) + scales + fifths + nibbles(128));
  for (size_t i = 0; i < 256; ++i) {
    const size_t group = i / 32;
    const float q = group % 2 == 0 ? low_nibble(i) : high_nibble(i);
    const float fifth = i % 32 == 3 && (0xa5 >> group & 1) ? 16 : 0;
    EXPECT_EQ(q4_k[i], 0.5F * scale[group] * q - 2 * minimum[group]) << i;
    EXPECT_EQ(q5_k[i], 0.5F * scale[group] * (q + fifth) - 2 * minimum[group]) << i;
  }
}

TEST(GgufBlocksTest, LargeBlocksWithSignedScales) {
  std::string scales;
  for (int i = 0; i < 16; ++i) scales += static_cast<char>(i - 8);
  std::string high(64, '\0');
  high[1] = static_cast<char>(0xe4);        // elements 1, 33, 65 and 97 of the first half: 0 to 3
  high[32 + 20] = static_cast<char>(0x1b);  // elements 20, 52, 84, 116 of the second: 3 to 0
  const auto q6_k = floats(GgmlType::kQ6_K, nibbles(128) + high + scales + half(0.5F));
  for (size_t i = 0; i < 256; ++i) {
    const size_t within = i % 128, part = within / 32;
    const float low = part < 2 ? low_nibble(within) : high_nibble(within);
    const auto top = static_cast<float>(i < 128 && within % 32 == 1     ? part
                                        : i >= 128 && within % 32 == 20 ? 3 - part
                                                                        : 0);
    const float scale = static_cast<float>(i / 16) - 8;
    EXPECT_EQ(q6_k[i], 0.5F * scale * (low + 16 * top - 32)) << i;
  }
}

TEST(GgufBlocksTest, PlainTypes) {
  EXPECT_EQ(floats(GgmlType::kF32, number(1.5F) + number(-0.1F)), (std::vector{1.5F, -0.1F}));
  EXPECT_EQ(floats(GgmlType::kF16, half(1.5F) + half(-65504)), (std::vector{1.5F, -65504.0F}));
  EXPECT_EQ(floats(GgmlType::kBF16, std::string("\xc0\x3f\x00\xbf", 4)),
            (std::vector{1.5F, -0.5F}));
}

TEST(GgufBlocksTest, RangesOfRowsAgreeAndBfloat16IsTheRoundedFloat) {
  std::mt19937 random(5);
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0,
                              GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1,
                              GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K}) {
    const std::vector<int64_t> shape{2, 3, 768};
    std::string bytes(ggml_bytes(type, shape, "t"), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // One byte off any alignment.
    const std::string shifted = "x" + bytes;
    const GgufTensor tensor{"t", type, shape, bytes_of(bytes)};
    const GgufTensor odd{"t", type, shape, bytes_of(shifted).subspan(1)};
    ASSERT_EQ(row_count(tensor), 6);
    ASSERT_EQ(column_count(tensor), 768);
    std::vector<float> all(6 * 768), part(2 * 768);
    std::vector<uint16_t> rounded(6 * 768);
    dequantize_rows(tensor, 0, 6, std::span(all));
    dequantize_rows(odd, 3, 5, std::span(part));
    dequantize_rows(tensor, 0, 6, std::span(rounded));
    EXPECT_EQ(std::memcmp(part.data(), all.data() + 3 * 768, part.size() * sizeof(float)), 0);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(rounded[i], bfloat16_of_float(all[i])) << info_of(type).name << " " << i;
  }
}

TEST(GgufBlocksTest, RefusesWhatDoesNotFit) {
  const std::string bytes(110, '\0');
  std::vector<float> out(256);
  const GgufTensor q3{"t", GgmlType::kQ3_K, {256}, bytes_of(bytes)};
  EXPECT_NE(message_of([&] {
              dequantize_rows(q3, 0, 1, std::span(out));
            }).find("tensor \"t\" has the type Q3_K, which cannot be read as floats"),
            std::string::npos);
  const GgufTensor f16{"t", GgmlType::kF16, {5, 11}, bytes_of(bytes)};
  EXPECT_EQ(message_of([&] { dequantize_rows(f16, 0, 6, std::span(out)); }),
            "tensor \"t\": rows 0 to 6 asked for; it has 5");
  EXPECT_EQ(message_of([&] { dequantize_rows(f16, 3, 2, std::span(out)); }),
            "tensor \"t\": rows 3 to 2 asked for; it has 5");
  EXPECT_EQ(message_of([&] { dequantize_rows(f16, 0, 1, std::span(out)); }),
            "tensor \"t\": room for 256 elements given; the rows have 11");
  const GgufTensor shorter{"t", GgmlType::kF16, {5, 11}, bytes_of(bytes).first(100)};
  EXPECT_EQ(message_of([&] { dequantize_rows(shorter, 0, 1, std::span(out).first(11)); }),
            "tensor \"t\" has 100 bytes, which do not fit its shape [5, 11]");
}

TEST(GgufQuantizeTest, Q8_0KeepsTheNearestMultiple) {
  std::vector<float> values(32, 0.0F);
  values[0] = -127;
  values[1] = 2.5F;  // halves go away from zero
  values[2] = -2.5F;
  values[3] = std::nextafter(0.5F, 0.0F);
  values[31] = 63.4F;
  std::string out(34, '\0');
  quantize(GgmlType::kQ8_0, values, std::as_writable_bytes(std::span(out)));
  const auto back = floats(GgmlType::kQ8_0, out);
  EXPECT_EQ(back[0], -127);
  EXPECT_EQ(back[1], 3);
  EXPECT_EQ(back[2], -3);
  EXPECT_EQ(back[3], 0);
  EXPECT_EQ(back[31], 63);
  // A block of zeros, and one so small that its scale has no inverse.
  for (const float value : {0.0F, 1e-38F}) {
    quantize(GgmlType::kQ8_0, std::vector<float>(32, value),
             std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, std::string(34, '\0'));
  }
}

// The root of the mean square error over that of the values.
float relative_error(GgmlType type, const std::vector<float>& values) {
  std::string out(ggml_bytes(type, std::vector{static_cast<int64_t>(values.size())}, "t"), '\0');
  quantize(type, values, std::as_writable_bytes(std::span(out)));
  const auto back = floats(type, out);
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(back[i]) - static_cast<double>(values[i]), 2);
    size += std::pow(static_cast<double>(values[i]), 2);
  }
  return static_cast<float>(std::sqrt(error / size));
}

TEST(GgufQuantizeTest, MoreBitsAreNearer) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const float scale : {1e-3F, 1.0F, 1e3F}) {
    std::vector<float> values(4096);
    for (float& value : values) value = scale * normal(random);
    const struct {
      GgmlType type;
      float least, most;
    } limits[] = {{GgmlType::kQ4_0, 0.08F, 0.10F},   {GgmlType::kQ4_1, 0.07F, 0.09F},
                  {GgmlType::kQ5_0, 0.04F, 0.05F},   {GgmlType::kQ5_1, 0.035F, 0.045F},
                  {GgmlType::kQ8_0, 0.004F, 0.006F}, {GgmlType::kQ4_K, 0.06F, 0.08F},
                  {GgmlType::kQ5_K, 0.03F, 0.04F},   {GgmlType::kQ6_K, 0.015F, 0.02F}};
    for (const auto& limit : limits) {
      const float error = relative_error(limit.type, values);
      EXPECT_GE(error, limit.least) << info_of(limit.type).name;
      EXPECT_LE(error, limit.most) << info_of(limit.type).name;
    }
  }
}

TEST(GgufQuantizeTest, LargeBlocksOfNumbersThatFitAreExact) {
  std::vector<float> q4(256), q6(256), none(256, 0.0F);
  for (size_t i = 0; i < 256; ++i) {
    q4[i] = 63 * static_cast<float>(i % 16) - 63 * 3;
    q6[i] = -128 * (static_cast<float>((i * 7) % 64) - 32) / 8;
  }
  for (size_t g = 0; g < 256; g += 16) q6[g] = 512;  // of each group the largest is the last level
  EXPECT_EQ(relative_error(GgmlType::kQ4_K, q4), 0);
  EXPECT_EQ(relative_error(GgmlType::kQ6_K, q6), 0);
  for (const GgmlType type : {GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K}) {
    std::string out(ggml_bytes(type, std::vector<int64_t>{256}, "t"), '\1');
    quantize(type, none, std::as_writable_bytes(std::span(out)));
    for (const float value : floats(type, out)) EXPECT_EQ(value, 0);
    for (const float large : {1e30F, -1e30F})
      EXPECT_NE(message_of([&] {
                  quantize(type, std::vector<float>(256, large),
                           std::as_writable_bytes(std::span(out)));
                }).find("scale would be infinite"),
                std::string::npos);
  }
}

TEST(GgufQuantizeTest, RefusesWhatTheTypeCannotHold) {
  const auto complaint = [](GgmlType type, float value) {
    const std::vector<float> values(32, value);
    std::vector<std::byte> out(ggml_bytes(type, std::vector<int64_t>{32}, "t"));
    return message_of([&] { quantize(type, values, out); });
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(complaint(GgmlType::kF16, 65519.99F), "");
  EXPECT_EQ(complaint(GgmlType::kF16, -kInfinity), "");
  EXPECT_EQ(complaint(GgmlType::kF16, -65520.0F),
            "the value -65520 cannot be stored as F16: 65504 is the largest number; choose another "
            "type");
  EXPECT_EQ(complaint(GgmlType::kQ8_0, 65504.0F * 127), "");
  EXPECT_NE(complaint(GgmlType::kQ8_0, 65520.0F * 127).find("scale would be infinite"),
            std::string::npos);
  EXPECT_NE(complaint(GgmlType::kQ8_0, kInfinity).find("the value inf"), std::string::npos);
  EXPECT_NE(complaint(GgmlType::kQ8_0, std::nanf("")).find("not finite"), std::string::npos);
  for (const GgmlType type : {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1}) {
    EXPECT_NE(complaint(type, -65520.0F * 16).find("scale would be infinite"), std::string::npos);
    EXPECT_NE(complaint(type, std::nanf("")).find("not finite"), std::string::npos);
  }
  std::vector<std::byte> out(34);
  EXPECT_EQ(message_of([&] { quantize(GgmlType::kI8, std::vector<float>(34), out); }),
            "the type I8 cannot be written; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, "
            "Q5_K or Q6_K expected");
  EXPECT_EQ(message_of([&] { quantize(GgmlType::kQ8_0, std::vector<float>(33), out); }),
            "33 values given; Q8_0 needs a multiple of 32");
  EXPECT_EQ(message_of([&] { quantize(GgmlType::kF32, std::vector<float>(33), out); }),
            "room for 34 bytes given; 33 values as F32 need 132");
}

}  // namespace
}  // namespace tempera::io
