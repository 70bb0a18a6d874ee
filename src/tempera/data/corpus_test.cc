#include "tempera/data/corpus.h"

#include <gtest/gtest.h>

#include "tempera/base/files.h"
#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

Corpus open(const std::vector<fs::path>& paths, const text::Tokenizer* tokenizer) {
  return Corpus::open(paths, tokenizer);
}

fs::path put_shard(const fs::path& path, const std::vector<std::byte>& bytes) {
  return put(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

TEST(Corpus, JoinsShardsTextAndJsonl) {
  const TempFolder folder;
  const text::ByteTokenizer tokenizer;
  fs::create_directory(folder.path() / "shards");
  put_shard(folder.path() / "shards" / "b.tokens", shard_bytes({{4}}));
  put_shard(folder.path() / "shards" / "a.tokens", shard_bytes({{1, 2}, {3}}));
  put(folder.path() / "shards" / "README", "not a shard");
  const auto text = put(folder.path() / "t.txt", "x\n<|endoftext|>\ny");
  const auto jsonl = put(folder.path() / "t.jsonl", "{\"text\": \"z\"}\n");
  const Corpus corpus = open({folder.path() / "shards", text, jsonl}, &tokenizer);
  std::vector<int64_t> tokens(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{1, 2, 3, 4, 'x', '\n', 256, 'y', 256, 'z', 256}));
  EXPECT_EQ(corpus.documents(), 6);
  const std::vector<int64_t> begins{0, 2, 3, 4, 7, 9, 11};
  for (int64_t i = 0; i <= 6; ++i)
    EXPECT_EQ(corpus.document_begin(i), begins[static_cast<size_t>(i)]) << i;
  const std::vector<int64_t> ends{2, 2, 3, 4, 7, 7, 7, 9, 9, 11, 11};
  for (int64_t at = 0; at < 11; ++at)
    EXPECT_EQ(corpus.document_end(at), ends[static_cast<size_t>(at)]) << at;
  std::vector<int64_t> middle(4);
  corpus.read(1, middle);
  EXPECT_EQ(middle, (std::vector<int64_t>{2, 3, 4, 'x'}));
  EXPECT_THROW(corpus.read(8, middle), Error);
}

TEST(Corpus, RefusesWhatDoesNotFitTogether) {
  const TempFolder folder;
  const text::ByteTokenizer tokenizer;
  const auto other = put_shard(folder.path() / "o.tokens", shard_bytes({{1}}, "gpt2", 50257));
  const auto bytes = put_shard(folder.path() / "b.tokens", shard_bytes({{1}}));
  const auto text = put(folder.path() / "t.txt", "x");
  const auto message = [&](const std::vector<fs::path>& paths, const text::Tokenizer* with) {
    return message_of([&] { open(paths, with); });
  };
  EXPECT_NE(message({other}, &tokenizer).find("'gpt2', the model uses 'bytes'"), std::string::npos);
  EXPECT_NE(message({bytes, other}, nullptr).find("do not fit together"), std::string::npos);
  EXPECT_NE(message({text}, nullptr).find("needs a tokenizer"), std::string::npos);
  EXPECT_NE(message({}, &tokenizer).find("no data"), std::string::npos);
  EXPECT_NE(message({folder.path() / "c.tokens"}, nullptr).find("did you mean"), std::string::npos);
  fs::create_directory(folder.path() / "empty");
  EXPECT_NE(message({folder.path() / "empty"}, nullptr).find("no token shards"), std::string::npos);
  const auto blank = put(folder.path() / "blank.txt", "<|endoftext|>\n");
  EXPECT_NE(message({blank}, &tokenizer).find("no text"), std::string::npos);
  EXPECT_EQ(open({other}, nullptr).vocabulary(), 50257);
}

}  // namespace
}  // namespace tempera::data
