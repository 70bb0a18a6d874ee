#include <gtest/gtest.h>

#include <functional>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/text/gguf_from_files.h"
#include "tempera/text/gguf_splits.h"
#include "tempera/text/gguf_to_files.h"
#include "tempera/text/load.h"
#include "tempera/text/testing.h"

namespace tempera::text {
namespace {

GgufTokenizer byte_level() {
  GgufTokenizer description;
  description.model = "gpt2";
  description.pre = "smollm";
  description.tokens = {"<|end|>", "a", "b", "ab", "Ġ", "1", "  "};
  description.types = {3, 1, 1, 1, 1, 1, 4};
  description.merges = {"a b"};
  description.begin_id = 0;
  description.end_id = 0;
  description.add_begin = true;
  return description;
}

// "aab" could be a + ab or aa + b; "aa" has the better score.
GgufTokenizer scored() {
  GgufTokenizer description;
  description.model = "llama";
  description.tokens = {"<unk>", "<s>",    "</s>", "<0x0A>", "a",
                        "b",     "\u2581", "ab",   "aa",     "\u2581aa"};
  description.types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1};
  description.scores = {0, 0, 0, 0, -9, -9, -9, -2, -1, -3};
  return description;
}

Ids special_ids_of(const Tokenizer& tokenizer, std::string_view text) {
  return ids_of(tokenizer, text, {.add_special = true, .parse_special = true});
}

void write_files(const TokenizerFiles& files, const std::filesystem::path& folder) {
  write_file(folder / "tokenizer.json", files.tokenizer_json);
  write_file(folder / "tokenizer_config.json", files.config.dump());
}

TEST(GgufFiles, ThereAndBack) {
  GgufTokenizer squeezed = scored();
  squeezed.remove_extra_whitespaces = true;
  for (const auto& description : {byte_level(), scored(), squeezed}) {
    const TempFolder folder;
    write_files(tokenizer_files(description), folder.path());
    const auto original = make_tokenizer(description);
    const auto loaded = load_tokenizer(folder.path());
    const auto back = gguf_tokenizer_of(folder.path(), 12);
    const auto again = make_tokenizer(back);
    EXPECT_EQ(back.model, description.model);
    EXPECT_EQ(back.pre, description.pre);
    EXPECT_EQ(back.merges, description.merges);
    for (const char* text :
         {"ab a", "aab1  1a", "", " a<|end|>b", "  a   b ", "  ", "baa\naab</s>a"}) {
      EXPECT_EQ(special_ids_of(*loaded, text), special_ids_of(*original, text)) << text;
      EXPECT_EQ(special_ids_of(*again, text), special_ids_of(*original, text)) << text;
    }
    // Rows of the model that no token has are filled.
    ASSERT_EQ(back.tokens.size(), 12);
    EXPECT_EQ(back.tokens[11], "[PAD11]");
    EXPECT_EQ(back.types[11], 5);
  }
  EXPECT_EQ(special_ids_of(*make_tokenizer(scored()), "aab"), (Ids{1, 9, 5}));
}

TEST(GgufFiles, RefusedWithTheReason) {
  const auto refusal = [](GgufTokenizer description,
                          const std::function<void(GgufTokenizer&)>& change) {
    change(description);
    return message_of([&] { tokenizer_files(description); });
  };
  EXPECT_NE(refusal(byte_level(), [](auto& d) { d.tokens[6] = "a"; }).find("two tokens 'a'"),
            std::string::npos);
  EXPECT_NE(refusal(scored(), [](auto& d) { d.types[7] = 4; }).find("the symbol 'ab'"),
            std::string::npos);
  EXPECT_NE(refusal(scored(), [](auto& d) { d.types[7] = 5; }).find("marked as unused"),
            std::string::npos);
  EXPECT_NE(refusal(scored(), [](auto& d) { d.model = "t5"; }).find("'t5'"), std::string::npos);

  const TempFolder folder;
  write_files(tokenizer_files(byte_level()), folder.path());
  EXPECT_NE(message_of([&] { gguf_tokenizer_of(folder.path(), 6); }).find("7 tokens"),
            std::string::npos);
}

// Files differ in how they spell the same steps.
TEST(GgufFiles, NamesOfSplits) {
  using nlohmann::json;
  const json gpt2 = json::parse(R"({"type": "ByteLevel", "add_prefix_space": false})");
  EXPECT_EQ(gguf_split_name(nullptr, gpt2, false), "gpt-2");
  EXPECT_EQ(gguf_split_name({{"type", "NFC"}}, gpt2, false), "olmo");
  EXPECT_FALSE(gguf_split_name(nullptr, gpt2, true));
  EXPECT_FALSE(gguf_split_name(nullptr, {{"type", "ByteLevel"}}, false));  // with a blank in front
  for (const std::string name :
       {"gpt-2", "olmo", "smollm", "llama-bpe", "smaug-bpe", "qwen2", "falcon", "deepseek-llm"}) {
    const auto& split = find_gguf_split(name);
    EXPECT_EQ(gguf_split_name(split.normalizer, split.pre_tokenizer, split.whole_words), name);
  }
}

}  // namespace
}  // namespace tempera::text
