#include "tempera/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/text/stream.h"
#include "tempera/text/testing.h"

namespace tempera::text {
namespace {

using nlohmann::json;

// Its last merge would make a special token out of text.
json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 7, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 9, "content": "ab!", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<e>", "type_id": 0}}],
      "pair": [], "special_tokens": {"<e>": {"id": "<e>", "ids": [7], "tokens": ["<e>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
      "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "Ã": 5, "©": 6, "<": 10, "e": 11,
                ">": 12, "<e": 13, "<e>": 7},
      "merges": ["a b", ["Ġ", "ab"], "< e", "<e >"]}})");
}

std::unique_ptr<Tokenizer> make(const json& document) {
  return make_tokenizer(parse_tokenizer_json(document.dump(), "test"));
}

TEST(TokenizerJson, SmallModelByHand) {
  const auto tokenizer = make(small());
  EXPECT_EQ(tokenizer->vocabulary(), 14);
  EXPECT_EQ(ids_of(*tokenizer, "ab ab"), (Ids{3, 4}));
  EXPECT_EQ(ids_of(*tokenizer, "ab", {.add_special = true}), (Ids{3, 7}));
  EXPECT_EQ(ids_of(*tokenizer, "aab!b"), (Ids{0, 9, 1}));
  EXPECT_EQ(ids_of(*tokenizer, ""), Ids{});
  EXPECT_EQ(tokenizer->piece(4), "Ġab");
  EXPECT_EQ(tokenizer->find("Ġab"), 4);
  EXPECT_FALSE(tokenizer->find("nothing"));
  std::string text;
  tokenizer->decode(Ids{3, 4, 7, 9}, text);
  EXPECT_EQ(text, "ab abab!");
  EXPECT_THROW(tokenizer->decode(Ids{14}, text), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}, text), Error);
}

TEST(TokenizerJson, TextGivesSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = make(small());
  EXPECT_EQ(ids_of(*tokenizer, "a<e>b"), (Ids{0, 13, 12, 1}));
  EXPECT_EQ(ids_of(*tokenizer, "a<e>b", {.parse_special = true}), (Ids{0, 7, 1}));
  EXPECT_TRUE(tokenizer->is_special(7));
  EXPECT_FALSE(tokenizer->is_special(9));
  std::string skipped, shown;
  tokenizer->decode(Ids{0, 7, 1}, skipped);
  tokenizer->decode(Ids{0, 7, 1}, shown, SpecialText::kShow);
  EXPECT_EQ(skipped, "ab");
  EXPECT_EQ(shown, "a<e>b");
}

TEST(TokenizerJson, TheNameFollowsThePieces) {
  json other = small();
  other["model"]["vocab"]["c"] = 14;
  const auto one = make(small()), two = make(small()), three = make(other);
  EXPECT_EQ(one->name(), two->name());
  EXPECT_NE(one->name(), three->name());
  EXPECT_TRUE(one->name().starts_with("bpe-14-"));
  EXPECT_LT(one->name().size(), 64U);
}

TEST(StreamDecoder, CharactersWaitForTheirLastByte) {
  const auto tokenizer = make(small());
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(3), "ab");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(6), "é");
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.push(4), " ab");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.push(0), "\uFFFDa");
  EXPECT_EQ(stream.push(6), "\uFFFD");
  EXPECT_EQ(stream.push(5), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

// Every part that is not known, and every fault, is refused with its name.
TEST(TokenizerJson, RefusesByName) {
  const auto message = [](const std::function<void(json&)>& change) {
    json document = small();
    change(document);
    try {
      make(document);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto expect = [&](const std::function<void(json&)>& change, const std::string& part) {
    EXPECT_NE(message(change).find(part), std::string::npos) << message(change);
  };
  expect([](json& d) { d["normalizer"] = {{"type", "NFCC"}}; }, "'NFCC'");
  expect([](json& d) { d["normalizer"] = {{"type", "NFCC"}}; }, "did you mean 'NFC'");
  expect([](json& d) { d["pre_tokenizer"]["type"] = "UnicodeScripts"; }, "'UnicodeScripts'");
  expect([](json& d) { d["decoder"]["type"] = "CTC"; }, "'CTC'");
  expect([](json& d) { d["post_processor"]["type"] = "Other"; }, "'Other'");
  expect([](json& d) { d["model"]["type"] = "WordLevel"; }, "'WordLevel'");
  expect([](json& d) { d["model"]["dropout"] = 0.1; }, "dropout");
  expect([](json& d) { d["model"]["new_field"] = 1; }, "\"new_field\"");
  expect([](json& d) { d["extra"] = 1; }, "\"extra\"");
  expect([](json& d) { d["pre_tokenizer"]["use_regex"] = 1; }, "true or false");
  expect([](json& d) { d["model"]["merges"].push_back("a c"); }, "'c', which is not in the vocab");
  expect([](json& d) { d["model"]["merges"].push_back("ab"); }, "merge 5 is 'ab'");
  expect([](json& d) { d["model"]["vocab"]["x"] = -1; }, "'x' has the id -1");
  expect([](json& d) { d["model"]["vocab"]["x"] = 1 << 30; }, "1073741824");
  expect([](json& d) { d["added_tokens"][0]["id"] = 3; }, "'<e>'");
  expect([](json& d) { d["added_tokens"][1]["id"] = 3; }, "which is 'ab'");
  expect([](json& d) { d["post_processor"]["special_tokens"]["<e>"]["ids"][0] = 8; }, "the id 8");
  expect([](json& d) { d["post_processor"]["special_tokens"]["<e>"]["ids"][0] = 99; }, "99");
  expect([](json& d) { d.erase("model"); }, "no \"model\"");
  expect([](json& d) { d["model"] = 3; }, "an object is expected");
  EXPECT_THROW(parse_tokenizer_json("{", "test"), Error);
}

}  // namespace
}  // namespace tempera::text
