#include "tempera/data/convert.h"

#include <gtest/gtest.h>

#include "tempera/base/files.h"
#include "tempera/data/corpus.h"
#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

size_t entries_in(const fs::path& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

ConvertSummary convert(const std::vector<fs::path>& inputs, const fs::path& out,
                       int64_t shard_tokens = 1000) {
  return convert_to_shards(inputs, text::ByteTokenizer(), out, {.shard_tokens = shard_tokens},
                           [](int64_t) {});
}

TEST(Convert, ShardsHoldWhatTheFilesHold) {
  const TempFolder folder;
  const text::ByteTokenizer tokenizer;
  const std::vector<fs::path> inputs{
      put(folder.path() / "a.txt", "first\n<|endoftext|>\nsecond\n<|endoftext|>\nthird"),
      put(folder.path() / "b.jsonl", "{\"text\": \"fourth\"}\n")};
  const auto summary = convert(inputs, folder.path() / "deep" / "out", /*shard_tokens=*/10);
  EXPECT_EQ(summary.documents, 4);
  EXPECT_EQ(summary.tokens, 7 + 8 + 6 + 7);
  EXPECT_EQ(summary.text_bytes, 6 + 7 + 5 + 6);
  ASSERT_EQ(summary.shards.size(), 2U);
  EXPECT_EQ(summary.shards[0].filename(), "shard-00000.tokens");
  EXPECT_EQ(entries_in(folder.path() / "deep"), 1U) << "something was left beside the folder";

  const std::vector<fs::path> shards{folder.path() / "deep" / "out"};
  const Corpus one = Corpus::open(shards, &tokenizer);
  const Corpus other = Corpus::open(inputs, &tokenizer);
  ASSERT_EQ(one.tokens(), other.tokens());
  ASSERT_EQ(one.documents(), other.documents());
  std::vector<int64_t> a(static_cast<size_t>(one.tokens()));
  std::vector<int64_t> b = a;
  one.read(0, a);
  other.read(0, b);
  EXPECT_EQ(a, b);
  for (int64_t i = 0; i <= one.documents(); ++i)
    EXPECT_EQ(one.document_begin(i), other.document_begin(i));
}

TEST(Convert, AnEmptyFolderIsFilledAndAFullOneIsNot) {
  const TempFolder folder;
  const auto text = put(folder.path() / "a.txt", "text");
  fs::create_directory(folder.path() / "out");
  convert({text}, folder.path() / "out" / "");
  EXPECT_EQ(entries_in(folder.path() / "out"), 1U);
  EXPECT_NE(message_of([&] { convert({text}, folder.path() / "out"); }).find("there already"),
            std::string::npos);
  EXPECT_NE(message_of([&] { convert({text}, text); }).find("there already"), std::string::npos);
}

TEST(Convert, AFailureLeavesNothing) {
  const TempFolder folder;
  const auto good = put(folder.path() / "a.txt", "text");
  const auto bad = put(folder.path() / "b.jsonl", "{}\n");
  const auto blank = put(folder.path() / "c.txt", "<|endoftext|>\n");
  const auto out = folder.path() / "out";
  EXPECT_THROW(convert({good, bad}, out, 1), Error);
  EXPECT_THROW(convert({good, folder.path() / "none"}, out), Error);
  EXPECT_THROW(convert({blank}, out), Error);
  EXPECT_THROW(convert({}, out), Error);
  EXPECT_THROW(convert_to_shards(std::vector{good}, text::ByteTokenizer(), out, {},
                                 [](int64_t) { throw Error("stopped"); }),
               Error);
  EXPECT_EQ(entries_in(folder.path()), 3U);
}

}  // namespace
}  // namespace tempera::data
