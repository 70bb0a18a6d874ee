#include "tempera/data/train_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/data/convert.h"
#include "tempera/data/shard.h"
#include "tempera/text/load.h"

namespace tempera::data {
namespace {

TEST(TrainTokenizer, ShardsAreMadeWithTheTokenizerBesideThem) {
  const TempFolder folder;
  const std::string first = "the cat sat on the mat the end\n", second = "the other cat";
  write_file(folder.path() / "a.txt", first + "<|endoftext|>\n" + second);
  const std::vector<std::filesystem::path> inputs = {folder.path() / "a.txt"};
  int64_t counted = 0;
  const std::string learnt =
      train_tokenizer(inputs, 262, [&](int64_t bytes, int64_t) { counted = bytes; });
  EXPECT_EQ(counted, static_cast<int64_t>(first.size() + second.size()));
  write_file(folder.path() / "tokenizer.json", learnt);
  const auto tokenizer = text::load_tokenizer(folder.path() / "tokenizer.json");
  EXPECT_EQ(tokenizer->vocabulary(), 262);
  EXPECT_EQ(tokenizer->special().end_of_text, 0);
  EXPECT_EQ(tokenizer->special().pad, 1);

  const auto out = folder.path() / "out";
  const auto summary = convert_to_shards(inputs, *tokenizer, out,
                                         {.files = {{"tokenizer.json", learnt}}}, [](int64_t) {});
  EXPECT_EQ(read_file(out / "tokenizer.json", 1 << 20), learnt);
  const auto shard = TokenShard::open(summary.shards.at(0));
  EXPECT_EQ(shard.tokenizer(), text::load_tokenizer(out)->name());
  std::vector<int64_t> ids(static_cast<size_t>(shard.document_begin(1)));
  shard.read(0, ids);
  std::string text;
  tokenizer->decode(std::vector<int32_t>(ids.begin(), ids.end()), text);
  EXPECT_EQ(text, first);
  EXPECT_EQ(ids.back(), 0);
}

TEST(TrainTokenizer, RefusesMissingFilesAndSmallVocabularies) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> missing = {folder.path() / "no.txt"};
  EXPECT_THROW(train_tokenizer(missing, 300, [](int64_t, int64_t) {}), Error);
  write_file(folder.path() / "a.txt", "text");
  const std::vector<std::filesystem::path> inputs = {folder.path() / "a.txt"};
  EXPECT_THROW(train_tokenizer(inputs, 257, [](int64_t, int64_t) {}), Error);
}

}  // namespace
}  // namespace tempera::data
