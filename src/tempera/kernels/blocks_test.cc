// Rows times matrices of blocks against sums in double precision of the numbers that the layouts
// stand for.
#include "tempera/kernels/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <vector>

namespace tempera::kernels {
namespace {

constexpr BlockType kAllTypes[] = {BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,
                                   BlockType::kQ5_1, BlockType::kQ8_0, BlockType::kQ4_K,
                                   BlockType::kQ5_K, BlockType::kQ6_K};

double half_at(const uint8_t* at) {
  const int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

int low_or_high(uint8_t byte, bool high) { return high ? byte >> 4 : byte & 15; }

// The 6-bit scale, or minimum, of a group.
int six_bits(const uint8_t* twelve, int64_t group, bool minimum) {
  const uint8_t* a = twelve + (minimum ? 4 : 0);
  if (group < 4) return a[group] & 63;
  return low_or_high(twelve[4 + group], minimum) | (a[group - 4] >> 6) << 4;
}

// Element i of a block.
double element(BlockType type, const uint8_t* b, int64_t i) {
  const bool upper = i >= 16;
  const int64_t group = i / 32;
  const auto fifth = [&](int64_t at) { return (b[at + i / 8] >> (i % 8) & 1) * 16; };
  switch (type) {
    case BlockType::kQ4_0:
      return half_at(b) * (low_or_high(b[2 + i % 16], upper) - 8);
    case BlockType::kQ4_1:
      return half_at(b) * low_or_high(b[4 + i % 16], upper) + half_at(b + 2);
    case BlockType::kQ5_0:
      return half_at(b) * (low_or_high(b[6 + i % 16], upper) + fifth(2) - 16);
    case BlockType::kQ5_1:
      return half_at(b) * (low_or_high(b[8 + i % 16], upper) + fifth(4)) + half_at(b + 2);
    case BlockType::kQ8_0:
      return half_at(b) * static_cast<int8_t>(b[2 + i]);
    case BlockType::kQ4_K:
    case BlockType::kQ5_K: {
      const bool five = type == BlockType::kQ5_K;
      const int q = low_or_high(b[(five ? 48 : 16) + group / 2 * 32 + i % 32], group % 2 == 1) +
                    (five ? (b[16 + i % 32] >> group & 1) * 16 : 0);
      return half_at(b) * six_bits(b + 4, group, false) * q -
             half_at(b + 2) * six_bits(b + 4, group, true);
    }
    case BlockType::kQ6_K:
      break;
  }
  const int64_t half = i / 128, part = i % 128 / 32;
  const int q = low_or_high(b[64 * half + i % 64], part >= 2) |
                (b[128 + 32 * half + i % 32] >> (2 * part) & 3) << 4;
  return half_at(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * (q - 32);
}

// Random bytes, with scales of moderate size and either sign.
std::vector<uint8_t> random_blocks(BlockType type, int64_t rows, int64_t inputs) {
  const BlockLayout layout = block_layout(type);
  std::mt19937 random(static_cast<uint32_t>(type) + 5);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * inputs / layout.elements * layout.bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(layout.bytes))
    for (const size_t place : {size_t{0}, size_t{2}, size_t{208}}) {
      if ((place == 208) != (type == BlockType::kQ6_K)) continue;
      // Exponents -9 to -2, and one in sixteen below the smallest normal number.
      const uint32_t exponent = random() % 16 == 0 ? 0 : 6 + random() % 8;
      bytes[at + place + 1] = static_cast<uint8_t>((random() & 0x83) | exponent << 2);
    }
  return bytes;
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(random);
  return numbers;
}

// What a row becomes: 8 bits and a scale for each 32 elements.
std::vector<double> rounded_row(const float* x, int64_t inputs) {
  std::vector<double> out;
  for (int64_t first = 0; first < inputs; first += 32) {
    float most = 0;
    for (int64_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(x[i]));
    const float inverse = most > 0 ? 127 / most : 0;
    for (int64_t i = first; i < first + 32; ++i)
      out.push_back(static_cast<double>(most / 127) *
                    static_cast<double>(std::nearbyint(x[i] * inverse)));
  }
  return out;
}

struct AlignedBytes {
  explicit AlignedBytes(int64_t count)
      : bytes(static_cast<std::byte*>(
            ::operator new(static_cast<size_t>(count) + 1, std::align_val_t{64}))) {}
  ~AlignedBytes() { ::operator delete(bytes, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* bytes;
};

template <class X>
void multiply(const BlockProductParams<X>& params, Parallel& parallel) {
  const AlignedBytes workspace(
      block_product_workspace(params.rows, params.inputs, parallel.workers()));
  block_product(params, parallel, workspace.bytes);
}

struct Part {
  BlockType type;
  int64_t outputs;
  std::vector<int64_t> place = {};
};

// A matrix of several parts, and rows that lie apart.
struct Problem {
  Problem(std::vector<Part> all, int64_t row_count, int64_t input_count)
      : parts(std::move(all)), rows(row_count), inputs(input_count) {
    for (const Part& part : parts) {
      bytes.push_back(random_blocks(part.type, part.outputs, inputs));
      outputs += part.outputs;
    }
    for (size_t i = 0; i < parts.size(); ++i)
      views.push_back({parts[i].type, parts[i].outputs, bytes[i].data(),
                       parts[i].place.empty() ? nullptr : parts[i].place.data()});
    x = random_floats(rows * (inputs + kGap), 1);
    bias = random_floats(outputs, 2);
    y.assign(static_cast<size_t>(rows * (outputs + kGap)), kUntouched);
  }

  BlockProductParams<float> params() {
    return {rows, inputs, views, x.data(), inputs + kGap, bias.data(), y.data(), outputs + kGap};
  }

  static constexpr int64_t kGap = 3;
  static constexpr float kUntouched = 1234.5F;
  std::vector<Part> parts;
  int64_t rows, inputs, outputs = 0;
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<BlockRows> views;
  std::vector<float> x, bias, y;
};

void expect_exact(Problem problem) {
  SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(problem.parts[0].type) << ", "
                                  << problem.rows << " x " << problem.inputs << " -> "
                                  << problem.outputs);
  Serial serial;
  multiply(problem.params(), serial);
  for (int64_t r = 0; r < problem.rows; ++r) {
    const float* y = problem.y.data() + r * (problem.outputs + Problem::kGap);
    const auto x =
        rounded_row(problem.x.data() + r * (problem.inputs + Problem::kGap), problem.inputs);
    int64_t first = 0;
    for (size_t p = 0; p < problem.parts.size(); ++p) {
      const Part& part = problem.parts[p];
      const BlockLayout layout = block_layout(part.type);
      for (int64_t o = 0; o < part.outputs; ++o) {
        const auto place = static_cast<size_t>(
            first + (part.place.empty() ? o : part.place[static_cast<size_t>(o)]));
        double wanted = static_cast<double>(problem.bias[place]), terms = std::abs(wanted);
        for (int64_t i = 0; i < problem.inputs; ++i) {
          const uint8_t* block =
              problem.bytes[p].data() + (o * problem.inputs + i) / layout.elements * layout.bytes;
          const double term =
              x[static_cast<size_t>(i)] * element(part.type, block, i % layout.elements);
          wanted += term;
          terms += std::abs(term);
        }
        ASSERT_NEAR(static_cast<double>(y[place]), wanted, 1e-6 * terms + 1e-30)
            << "row " << r << ", output " << o << " of part " << p;
      }
      first += part.outputs;
    }
    for (int64_t i = 0; i < Problem::kGap; ++i)
      ASSERT_EQ(y[problem.outputs + i], Problem::kUntouched) << "written behind a row";
  }
}

class Blocks : public testing::TestWithParam<BlockType> {};

TEST_P(Blocks, ProductsEqualTheSumsInDoublePrecision) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 9, 19})
    for (const int64_t outputs : {1, 3, 4, 7, 17})
      expect_exact(Problem({{GetParam(), outputs}}, rows, 256 + 256 * (rows % 2)));
}

TEST_P(Blocks, ManyTasks) {
  expect_exact(Problem({{GetParam(), 301}}, 2, 768));
  expect_exact(Problem({{GetParam(), 150}}, 6, 768));
}

TEST_P(Blocks, NothingInGivesTheBias) {
  expect_exact(Problem({{GetParam(), 3}}, 2, 0));
  expect_exact(Problem({{GetParam(), 3}}, 0, 256));
  expect_exact(Problem({{GetParam(), 0}}, 4, 256));
}

TEST_P(Blocks, PartsOfSeveralTypesPutTheirRowsInPlace) {
  std::vector<int64_t> backwards(21);
  for (size_t i = 0; i < backwards.size(); ++i)
    backwards[i] = static_cast<int64_t>(backwards.size() - 1 - i);
  for (const int64_t rows : {1, 5})
    expect_exact(
        Problem({{GetParam(), 21, backwards}, {BlockType::kQ8_0, 6}, {GetParam(), 9}}, rows, 512));
}

// Neither the workers nor the rows beside it change a bit of a result.
TEST_P(Blocks, TheSameBits) {
  Problem problem({{GetParam(), 301}, {GetParam(), 70}}, 23, 768);
  Serial serial;
  multiply(problem.params(), serial);
  const std::vector<float> together = problem.y;
  const auto pool = make_thread_pool(3);
  std::ranges::fill(problem.y, Problem::kUntouched);
  multiply(problem.params(), *pool);
  EXPECT_EQ(std::memcmp(together.data(), problem.y.data(), together.size() * sizeof(float)), 0);
  std::ranges::fill(problem.y, Problem::kUntouched);
  int64_t row = 0;
  for (const int64_t count : {1, 2, 8, 3, 4, 5}) {
    auto params = problem.params();
    params.x += row * params.x_stride;
    params.y += row * params.y_stride;
    params.rows = count;
    multiply(params, serial);
    row += count;
  }
  ASSERT_EQ(row, problem.rows);
  EXPECT_EQ(std::memcmp(together.data(), problem.y.data(), together.size() * sizeof(float)), 0);
}

TEST_P(Blocks, RowsThatAreNotFiniteAreNansAlone) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Problem problem({{GetParam(), 5}}, 3, 256);
    problem.x[static_cast<size_t>(256 + Problem::kGap + 40)] = bad;
    Serial serial;
    multiply(problem.params(), serial);
    for (size_t r = 0; r < 3; ++r)
      for (size_t o = 0; o < 5; ++o)
        EXPECT_EQ(std::isnan(problem.y[r * (5 + Problem::kGap) + o]), r == 1) << r;
  }
}

TEST_P(Blocks, BlocksThatAreNotFiniteShowInTheirResultsAlone) {
  const bool has_minima = GetParam() == BlockType::kQ4_1 || GetParam() == BlockType::kQ5_1 ||
                          GetParam() == BlockType::kQ4_K || GetParam() == BlockType::kQ5_K;
  const auto scale = static_cast<size_t>(GetParam() == BlockType::kQ6_K ? 208 : 0);
  for (const int bits : {0x7c00, 0xfc00, 0x7e00, 0xfc01, 0x7fff})
    for (const size_t place : {scale, scale + 2}) {
      if (place != scale && !has_minima) continue;
      Problem problem({{GetParam(), 7}}, 2, 256);
      const size_t row = problem.bytes[0].size() / 7;
      problem.bytes[0][3 * row + place] = static_cast<uint8_t>(bits & 255);
      problem.bytes[0][3 * row + place + 1] = static_cast<uint8_t>(bits >> 8);
      Serial serial;
      multiply(problem.params(), serial);
      for (size_t r = 0; r < 2; ++r)
        for (size_t o = 0; o < 7; ++o)
          EXPECT_EQ(std::isfinite(problem.y[r * (7 + Problem::kGap) + o]), o != 3)
              << bits << " at " << place;
    }
}

TEST_P(Blocks, BFloat16RowsAreRoundedResultsOfTheSameNumbers) {
  Problem problem({{GetParam(), 19}}, 4, 512);
  std::vector<BFloat16> x(problem.x.size()), y(problem.y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(problem.x[i]) >> 16);
    problem.x[i] = std::bit_cast<float>(static_cast<uint32_t>(x[i].bits) << 16);
  }
  Serial serial;
  multiply(problem.params(), serial);
  multiply(BlockProductParams<BFloat16>{problem.rows, problem.inputs, problem.views, x.data(),
                                        problem.inputs + Problem::kGap, problem.bias.data(),
                                        y.data(), problem.outputs + Problem::kGap},
           serial);
  for (int64_t r = 0; r < problem.rows; ++r)
    for (int64_t o = 0; o < problem.outputs; ++o) {
      const auto at = static_cast<size_t>(r * (problem.outputs + Problem::kGap) + o);
      const float found = std::bit_cast<float>(static_cast<uint32_t>(y[at].bits) << 16);
      EXPECT_NEAR(found, problem.y[at], std::abs(problem.y[at]) / 256);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Blocks, testing::ValuesIn(kAllTypes));

}  // namespace
}  // namespace tempera::kernels
