#include "tempera/text/gguf_to_files.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "tempera/base/error.h"
#include "tempera/text/gguf_splits.h"
#include "tempera/text/tokenizer_json_writer.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

using nlohmann::json;
using Type = SentencePieceModel::Type;

// A file keeps ids by piece, so that each has to have a name of its own.
void check_names(const std::vector<std::string>& pieces) {
  std::set<std::string_view> seen;
  for (const auto& piece : pieces)
    TEMPERA_CHECK(piece.empty() || seen.insert(piece).second,
                  "the GGUF file's tokenizer has two tokens '", piece,
                  "', which a tokenizer.json cannot have");
}

json replaced(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// Begin and end of a text.
json post_processor(const Tokenizer& tokenizer) {
  const AroundText around = around_text(tokenizer);
  if (around.before.empty() && around.after.empty()) return nullptr;
  json specials = json::object();
  json single = json::array(), pair = json::array();
  const auto put = [&](json& list, const std::vector<int32_t>& ids, int type) {
    for (const int32_t id : ids) {
      const std::string piece = tokenizer.piece(id);
      list.push_back({{"SpecialToken", {{"id", piece}, {"type_id", type}}}});
      specials[piece] = {
          {"id", piece}, {"ids", json::array({id})}, {"tokens", json::array({piece})}};
    }
  };
  const auto put_text = [&](json& list, const char* name, int type) {
    put(list, around.before, type);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    put(list, around.after, type);
  };
  put_text(single, "A", 0);
  put_text(pair, "A", 0);
  put_text(pair, "B", 1);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

BpeJson byte_level_file(const GgufTokenizer& description) {
  const GgufSplit& split = find_gguf_split(description.pre);
  BpeJson file{.merges = description.merges,
               .whole_words = split.whole_words,
               .normalizer = split.normalizer,
               .pre_tokenizer = split.pre_tokenizer,
               .decoder = byte_level_json(true, true)};
  for (size_t id = 0; id < description.tokens.size(); ++id) {
    file.pieces.push_back(valid_utf8(description.tokens[id]));
    const auto type = static_cast<Type>(description.types.empty() ? 1 : description.types[id]);
    const bool special = type == Type::kControl || type == Type::kUnknown;
    if ((special || type == Type::kUserDefined) && !file.pieces.back().empty())
      file.added.push_back(
          {.content = file.pieces.back(), .id = static_cast<int32_t>(id), .special = special});
  }
  return file;
}

// In the order in which they are joined.
std::vector<std::string> merge_lines(const SentencePieceModel& model) {
  auto merges = sentencepiece_merges(model);
  std::sort(merges.begin(), merges.end(), [](const BpeMerge& a, const BpeMerge& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  std::vector<std::string> lines;
  for (const BpeMerge& merge : merges) {
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      const auto& piece = model.pieces[static_cast<size_t>(id)];
      TEMPERA_CHECK(piece.type != Type::kUnused && piece.text.find(' ') == std::string::npos,
                    "the GGUF file's tokenizer joins the token '", piece.text,
                    "', which is marked as unused or holds a blank; a tokenizer.json cannot");
    }
    lines.push_back(concat(model.pieces[static_cast<size_t>(merge.left)].text, " ",
                           model.pieces[static_cast<size_t>(merge.right)].text));
  }
  return lines;
}

BpeJson sentencepiece_file(const SentencePieceModel& model) {
  TEMPERA_CHECK(model.charsmap.empty(), "the GGUF file's tokenizer has rules for characters; they ",
                "are not written to a tokenizer.json yet");
  json normalizers = model.remove_extra_whitespaces ? squeeze_json() : json::array();
  json decoders = {replaced(kBlankMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (model.add_dummy_prefix) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", kBlankMark}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(replaced(" ", kBlankMark));
  BpeJson file{.merges = merge_lines(model),
               .fuse_unknown = true,
               .byte_fallback = model.byte_fallback,
               .normalizer = {{"type", "Sequence"}, {"normalizers", normalizers}},
               .decoder = {{"type", "Sequence"}, {"decoders", decoders}}};
  for (const auto& piece : model.pieces) {
    const auto id = static_cast<int32_t>(file.pieces.size());
    file.pieces.push_back(piece.text);
    if (piece.type == Type::kUnknown) file.unknown = piece.text;
    if (piece.type == Type::kUserDefined) {
      TEMPERA_CHECK(!model.add_dummy_prefix, "the GGUF file's tokenizer has the symbol '",
                    piece.text, "' (token ", id,
                    ") that is found inside of words, and a prefix to texts; a tokenizer.json "
                    "would put the prefix behind the symbol too");
      file.added.push_back({.content = piece.text, .id = id, .normalized = true});
    }
    if (piece.type == Type::kUnknown || piece.type == Type::kControl)
      file.added.push_back({.content = piece.text, .id = id, .special = true});
  }
  return file;
}

json config_of(const Tokenizer& tokenizer) {
  const SpecialTokens special = tokenizer.special();
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  const auto put = [&](const char* name, std::optional<int32_t> id) {
    if (id) config[name] = tokenizer.piece(*id);
  };
  put("bos_token", special.begin_of_text);
  put("eos_token", special.end_of_text);
  put("unk_token", special.unknown);
  put("pad_token", special.pad);
  put("mask_token", special.mask);
  return config;
}

}  // namespace

json squeeze_json() {
  const auto step = [](const char* pattern, const char* content) -> json {
    return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
  };
  return json::array({step("\\A +|[ \xE2\x96\x81]+\\z", ""), step(" {2,}", " ")});
}

AroundText around_text(const Tokenizer& tokenizer) {
  std::vector<int32_t> plain, whole;
  tokenizer.encode("a", plain);
  tokenizer.encode("a", whole, {.add_special = true});
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  AroundText around{.before = {whole.begin(), at}, .after = {}};
  if (at != whole.end())
    around.after.assign(at + static_cast<std::ptrdiff_t>(plain.size()), whole.end());
  return around;
}

TokenizerFiles tokenizer_files(const GgufTokenizer& description) {
  const auto tokenizer = make_tokenizer(description);
  TEMPERA_CHECK(description.model == "gpt2" || description.model == "llama",
                "a tokenizer of the model '", description.model,
                "' is not written to a tokenizer.json yet; those of gpt2 and llama are");
  BpeJson file = description.model == "gpt2" ? byte_level_file(description)
                                             : sentencepiece_file(sentencepiece_model(description));
  check_names(file.pieces);
  file.post_processor = post_processor(*tokenizer);
  return {.tokenizer_json = tokenizer_json_text(file), .config = config_of(*tokenizer)};
}

}  // namespace tempera::text
