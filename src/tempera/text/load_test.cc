#include "tempera/text/load.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/text/gguf_tokenizer.h"
#include "tempera/text/testing.h"

namespace tempera::text {
namespace {

namespace fs = std::filesystem;

TEST(LoadTokenizer, FilesOfAFolder) {
  const TempFolder folder;
  const fs::path& path = folder.path();
  EXPECT_NE(message_of([&] { load_tokenizer(path); }).find("no tokenizer in"), std::string::npos);
  EXPECT_NE(message_of([&] { load_tokenizer(path / "x"); }).find("no file"), std::string::npos);
  write_file(path / "x.bin", "x");
  EXPECT_NE(message_of([&] { load_tokenizer(path / "x.bin"); }).find("is no tokenizer"),
            std::string::npos);

  write_file(path / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nca\n##t\n!\n");
  const auto bert = load_tokenizer(path);
  EXPECT_EQ(ids_of(*bert, "The c\u00e1t! dog"), (Ids{5, 6, 7, 8, 1}));
  EXPECT_EQ(ids_of(*bert, "the", {.add_special = true}), (Ids{2, 5, 3}));
  EXPECT_EQ(bert->special().pad, 0);
  EXPECT_EQ(bert->special().end_of_text, 3);
  write_file(path / "tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(ids_of(*load_tokenizer(path), "The the"), (Ids{1, 5}));

  write_file(path / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  EXPECT_NE(message_of([&] { load_tokenizer(path); }).find("merges"), std::string::npos);
  write_file(path / "merges.txt", "#version: 0.2\na b\n");
  const auto bpe = load_tokenizer(path);
  EXPECT_EQ(ids_of(*bpe, "abb"), (Ids{2, 1}));
  EXPECT_EQ(bpe->special().end_of_text, 3);
  EXPECT_EQ(ids_of(*bpe, "a<|endoftext|>", {.parse_special = true}), (Ids{0, 3}));

  write_file(path / "config.json", R"({"tempera": {"tokenizer": "bytes"}})");
  EXPECT_EQ(load_tokenizer(path)->name(), "bytes");
}

GgufTokenizer small_gguf() {
  GgufTokenizer description;
  description.model = "gpt2";
  description.pre = "gpt-2";
  description.tokens = {"a", "b", "ab", "<|end|>", "Ġ"};
  description.types = {1, 1, 1, 3, 1};
  description.merges = {"a b"};
  description.end_id = 3;
  return description;
}

// Whatever a file is called, and whatever else lies beside it: a folder with its sources has the
// same tokenizer.
TEST(LoadTokenizer, SourcesOfAFileMakeTheSameTokenizer) {
  const TempFolder folder;
  const fs::path corpus = "src/tempera/text/tokenizer_corpus";
  const auto copy = [&](const char* from, const char* to) {
    fs::copy_file(corpus / from, folder.path() / to);
  };
  copy("wordpiece.json", "tokenizer.json");
  copy("bpe.json", "mine.json");
  copy("unigram.model", "mine.model");
  write_file(folder.path() / "mine-vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write_file(folder.path() / "mine-merges.txt", "a b\n");
  write_file(folder.path() / "mine.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n");
  for (const char* name :
       {"mine.json", "mine.model", "mine-vocab.json", "mine.txt", "tokenizer.json"}) {
    const auto given = load_tokenizer(folder.path() / name);
    const TempFolder taken;
    for (const auto& [as, path] : tokenizer_sources(folder.path() / name))
      fs::copy_file(path, taken.path() / as);
    const auto again = load_tokenizer(taken.path());
    EXPECT_EQ(again->name(), given->name()) << name;
    EXPECT_EQ(ids_of(*again, "ab a b"), ids_of(*given, "ab a b")) << name;
  }
}

TEST(GgufTokenizer, SmallModelByHand) {
  const auto tokenizer = make_tokenizer(small_gguf());
  EXPECT_EQ(ids_of(*tokenizer, "ab a"), (Ids{2, 4, 0}));
  EXPECT_EQ(ids_of(*tokenizer, "a<|end|>", {.parse_special = true}), (Ids{0, 3}));
  EXPECT_EQ(tokenizer->special().end_of_text, 3);
}

TEST(GgufTokenizer, RefusesByName) {
  const auto message = [](const std::function<void(GgufTokenizer&)>& change) {
    GgufTokenizer description = small_gguf();
    change(description);
    return message_of([&] { make_tokenizer(description); });
  };
  const std::string pre = message([](GgufTokenizer& d) { d.pre = "gpt-3"; });
  EXPECT_NE(pre.find("'gpt-3'"), std::string::npos) << pre;
  EXPECT_NE(pre.find("known are gpt-2, "), std::string::npos) << pre;
  EXPECT_NE(message([](GgufTokenizer& d) { d.model = "rwkv"; }).find("'rwkv'"), std::string::npos);
  EXPECT_NE(message([](GgufTokenizer& d) { d.types.pop_back(); }).find("4 types"),
            std::string::npos);
  EXPECT_NE(message([](GgufTokenizer& d) { d.types[0] = 9; }).find("type 9"), std::string::npos);
  EXPECT_NE(message([](GgufTokenizer& d) { d.model = "llama"; }).find("0 scores"),
            std::string::npos);
  EXPECT_NE(message([](GgufTokenizer& d) { d.merges = {"ab"}; }).find("'ab'"), std::string::npos);
}

// Every name of a split makes a tokenizer that keeps all of a text.
TEST(GgufTokenizer, EverySplitKeepsTheText) {
  for (const char* pre : {"gpt-2", "olmo", "smollm", "starcoder", "refact", "llama-bpe", "dbrx",
                          "qwen2", "falcon", "deepseek-llm", "granite", "gpt-neox"}) {
    GgufTokenizer description = small_gguf();
    description.pre = pre;
    const auto tokenizer = make_tokenizer(description);
    std::string text;
    tokenizer->decode(ids_of(*tokenizer, "ab a  b"), text);
    EXPECT_EQ(text, "ab a  b") << pre;
  }
}

fs::path data_folder() {
  if (const char* given = std::getenv("TEMPERA_DATA")) return given;
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "" : home) / ".cache" / "tempera-data";
}

struct VectorCase {
  const char* vectors;
  const char* tokenizer;
};

class Vectors : public testing::TestWithParam<VectorCase> {};

// Texts with the ids that other programs agree on.
TEST_P(Vectors, Agree) {
  const fs::path folder = data_folder() / "tokenizers";
  const fs::path base = folder / "vectors" / GetParam().vectors;
  const fs::path path = folder / GetParam().tokenizer;
  if (!fs::exists(base.string() + ".inp") || !fs::exists(path))
    GTEST_SKIP() << path << " is not there (TEMPERA_DATA)";
  const auto tokenizer = load_tokenizer(path);
  std::string inputs = read_file(base.string() + ".inp", 1 << 24);
  std::istringstream outputs(read_file(base.string() + ".out", 1 << 24));
  const std::string between = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (size_t at = 0; at <= inputs.size(); ++count) {
    const size_t end = std::min(inputs.find(between, at), inputs.size());
    const std::string text = inputs.substr(at, end - at);
    at = end + (end == inputs.size() ? 1 : between.size());
    std::string line;
    std::getline(outputs, line);
    std::istringstream fields(line);
    Ids wanted;
    for (int32_t id = 0; fields >> id;) wanted.push_back(id);
    EXPECT_EQ(ids_of(*tokenizer, text), wanted) << text;
  }
  EXPECT_GT(count, 40);
}

INSTANTIATE_TEST_SUITE_P(
    Real, Vectors,
    testing::Values(VectorCase{"ggml-vocab-gpt-2.gguf", "gpt2/tokenizer.json"},
                    VectorCase{"ggml-vocab-gpt-2.gguf", "gpt2/vocab.json"},
                    VectorCase{"ggml-vocab-gpt-2.gguf", "vectors/ggml-vocab-gpt-2.gguf"},
                    VectorCase{"ggml-vocab-llama-spm.gguf", "llama2/tokenizer.model"},
                    VectorCase{"ggml-vocab-llama-spm.gguf", "llama2/tokenizer.json"},
                    VectorCase{"ggml-vocab-llama-spm.gguf", "vectors/ggml-vocab-llama-spm.gguf"},
                    VectorCase{"ggml-vocab-bert-bge.gguf", "bert/bert-base-uncased-vocab.txt"},
                    VectorCase{"ggml-vocab-bert-bge.gguf", "vectors/ggml-vocab-bert-bge.gguf"},
                    VectorCase{"ggml-vocab-qwen2.gguf", "qwen2_5/tokenizer.json"}));

}  // namespace
}  // namespace tempera::text
