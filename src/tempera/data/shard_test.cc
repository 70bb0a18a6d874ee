#include "tempera/data/shard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>

#include "tempera/base/files.h"
#include "tempera/data/checksum.h"
#include "tempera/data/random.h"
#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

std::vector<int64_t> all_tokens(const TokenShard& shard) {
  std::vector<int64_t> tokens(static_cast<size_t>(shard.tokens()));
  shard.read(0, tokens);
  return tokens;
}

void put_u64(std::vector<std::byte>& bytes, size_t at, uint64_t value) {
  std::memcpy(bytes.data() + at, &value, 8);
}

// Makes both checksums right again, so that a hostile file gets past them.
void sign(std::vector<std::byte>& bytes) {
  const std::span<const std::byte> all(bytes);
  put_u64(bytes, 104, checksum(all.subspan(120)));
  put_u64(bytes, 112, checksum(all.first(112)));
}

// Places of fields in the header.
constexpr size_t kWidthAt = 12;
constexpr size_t kTokensAt = 16;
constexpr size_t kDocumentsAt = 24;
constexpr size_t kVocabularyAt = 32;
constexpr size_t kNameAt = 40;
constexpr size_t kOffsetsAt = 120;

std::string parse_error(std::vector<std::byte> bytes) {
  return message_of([&] { TokenShard::parse(std::move(bytes), "x.tokens"); });
}

TEST(Shard, ComesBackAsItWasWritten) {
  const auto shard = TokenShard::parse(shard_bytes({{1, 2, 258}, {}, {0}, {7, 7}}), "x");
  EXPECT_EQ(shard.tokenizer(), "bytes");
  EXPECT_EQ(shard.vocabulary(), 259);
  EXPECT_EQ(shard.documents(), 3);
  EXPECT_EQ(all_tokens(shard), (std::vector<int64_t>{1, 2, 258, 0, 7, 7}));
  EXPECT_EQ(shard.document_begin(0), 0);
  EXPECT_EQ(shard.document_begin(1), 3);
  EXPECT_EQ(shard.document_begin(2), 4);
  EXPECT_EQ(shard.document_begin(3), 6);
  const std::vector<int64_t> owners{0, 0, 0, 1, 2, 2};
  for (int64_t at = 0; at < 6; ++at)
    EXPECT_EQ(shard.document_of(at), owners[static_cast<size_t>(at)]);
  std::vector<int64_t> two(2);
  shard.read(2, two);
  EXPECT_EQ(two, (std::vector<int64_t>{258, 0}));
  EXPECT_THROW(shard.read(5, two), Error);
  EXPECT_THROW(shard.read(-1, two), Error);
}

TEST(Shard, IdsTakeFourBytesWhereTwoAreTooFew) {
  const auto narrow = shard_bytes({{0, 65535}}, "t", 65536);
  const auto wide = shard_bytes({{0, 65536}}, "t", 65537);
  EXPECT_EQ(wide.size(), narrow.size() + 4);
  EXPECT_EQ(all_tokens(TokenShard::parse(narrow, "n")), (std::vector<int64_t>{0, 65535}));
  EXPECT_EQ(all_tokens(TokenShard::parse(wide, "w")), (std::vector<int64_t>{0, 65536}));
}

TEST(Shard, AFileIsMappedAndSurvivesAMove) {
  const TempFolder folder;
  const auto bytes = shard_bytes({{5, 6}});
  const auto path = folder.path() / "a.tokens";
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  TokenShard shard = TokenShard::open(path);
  std::vector<TokenShard> moved;
  moved.push_back(std::move(shard));
  moved.push_back(TokenShard::parse(bytes, "memory"));
  moved.reserve(100);
  EXPECT_EQ(all_tokens(moved[0]), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(all_tokens(moved[1]), (std::vector<int64_t>{5, 6}));
}

TEST(Shard, BuilderRefusesIdsOutsideTheVocabulary) {
  ShardBuilder builder("t", 10);
  const std::vector<int32_t> high{10};
  const std::vector<int32_t> negative{-1};
  EXPECT_THROW(builder.append(high), Error);
  EXPECT_THROW(builder.append(negative), Error);
  EXPECT_THROW(ShardBuilder(std::string(64, 'x'), 10), Error);
  EXPECT_THROW(ShardBuilder("t", 0), Error);
}

TEST(Shard, EveryTruncationIsFound) {
  const auto bytes = shard_bytes({{1, 2, 3}, {4, 5}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(
        TokenShard::parse({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, "x"),
        Error)
        << size;
}

TEST(Shard, TrailingBytesAreFound) {
  auto bytes = shard_bytes({{1, 2, 3}});
  bytes.resize(bytes.size() + 2);
  sign(bytes);
  EXPECT_NE(parse_error(bytes).find("torn"), std::string::npos);
}

TEST(Shard, EveryFlippedBitIsFound) {
  const auto bytes = shard_bytes({{1, 2, 3}, {4, 5}});
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(TokenShard::parse(damaged, "x"), Error) << bit;
  }
}

TEST(Shard, HostileFilesWithRightChecksumsAreRefused) {
  const auto good = shard_bytes({{1, 2, 3}, {4, 5}});
  const auto with = [&](size_t at, uint64_t value) {
    auto bytes = good;
    put_u64(bytes, at, value);
    sign(bytes);
    return parse_error(bytes);
  };
  // Counts that wrap round 64 bits to the right size.
  EXPECT_NE(with(kTokensAt, (1ULL << 63) + 5).find("torn"), std::string::npos);
  EXPECT_NE(with(kDocumentsAt, (1ULL << 61) + 2).find("torn"), std::string::npos);
  EXPECT_NE(with(kDocumentsAt, ~0ULL).find("torn"), std::string::npos);
  EXPECT_NE(with(kTokensAt, ~0ULL).find("torn"), std::string::npos);
  // Boundaries out of order, outside, or around an empty document.
  EXPECT_NE(with(kOffsetsAt, 1).find("order"), std::string::npos);
  EXPECT_NE(with(kOffsetsAt + 8, 6).find("order"), std::string::npos);
  EXPECT_NE(with(kOffsetsAt + 8, ~0ULL).find("order"), std::string::npos);
  EXPECT_NE(with(kOffsetsAt + 8, 0).find("order"), std::string::npos);
  EXPECT_NE(with(kOffsetsAt + 16, 4).find("order"), std::string::npos);
  // Vocabularies that the ids or their width do not fit.
  EXPECT_NE(with(kVocabularyAt, 5).find("at or above"), std::string::npos);
  EXPECT_NE(with(kVocabularyAt, 0).find("vocabulary"), std::string::npos);
  EXPECT_NE(with(kVocabularyAt, 1ULL << 40).find("vocabulary"), std::string::npos);

  auto width = good;
  width[kWidthAt] = std::byte{0};
  sign(width);
  EXPECT_NE(parse_error(width).find("ids of 0 bytes"), std::string::npos);
  auto name = good;
  for (size_t i = 0; i < 64; ++i) name.at(kNameAt + i) = std::byte{'x'};
  sign(name);
  EXPECT_NE(parse_error(name).find("without an end"), std::string::npos);
}

TEST(Shard, RandomDamageNeverGetsThrough) {
  std::vector<int32_t> ids(300);
  std::iota(ids.begin(), ids.end(), 0);
  const auto good = shard_bytes({ids, ids}, "t", 300);
  for (uint64_t round = 0; round < 2000; ++round) {
    RandomStream random(1, round);
    auto bytes = good;
    const auto at = random.below(static_cast<uint32_t>(bytes.size()));
    const auto count = std::min<size_t>(1 + random.below(64), bytes.size() - at);
    bool changed = false;
    for (size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<std::byte>(random.below(256));
      changed |= bytes[at + i] != byte;
      bytes[at + i] = byte;
    }
    if (changed) {
      EXPECT_THROW(TokenShard::parse(bytes, "x"), Error) << round;
    }
  }
}

TEST(Shard, OtherFilesAreNamedForWhatTheyAre) {
  EXPECT_NE(parse_error(std::vector<std::byte>(500, std::byte{'a'})).find("not a token shard"),
            std::string::npos);
  EXPECT_NE(parse_error({}).find("too small"), std::string::npos);
}

TEST(Checksum, SeesLengthOrderAndEveryTail) {
  std::set<uint64_t> sums;
  for (size_t size = 0; size < 100; ++size) {
    std::vector<std::byte> bytes(size);
    sums.insert(checksum(bytes));
    if (size > 0) {
      bytes.back() = std::byte{1};
      sums.insert(checksum(bytes));
    }
  }
  EXPECT_EQ(sums.size(), 199U);
}

}  // namespace
}  // namespace tempera::data
