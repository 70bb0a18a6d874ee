#include "tempera/text/gguf_from_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/json.h"
#include "tempera/text/gguf_splits.h"
#include "tempera/text/gguf_to_files.h"
#include "tempera/text/json_fields.h"
#include "tempera/text/load.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Type = SentencePieceModel::Type;

constexpr uint64_t kLargestFile = uint64_t{256} << 20;
constexpr const char* kWithout =
    "; without the tokenizer's files in the folder, the model is exported without a tokenizer";

void set_type(GgufTokenizer& result, size_t id, Type type) {
  result.types[id] = static_cast<int32_t>(type);
}

// Tokens with their types, from what the loaded tokenizer says; holes are unused.
void put_tokens(const Tokenizer& tokenizer, int64_t rows, GgufTokenizer& result) {
  TEMPERA_CHECK(tokenizer.vocabulary() <= rows, "the tokenizer has ", tokenizer.vocabulary(),
                " tokens, and the model ", rows, " rows for them");
  for (int32_t id = 0; id < rows; ++id) {
    std::string piece = id < tokenizer.vocabulary() ? tokenizer.piece(id) : std::string();
    const bool hole = piece.empty();
    result.tokens.push_back(hole ? concat("[PAD", id, "]") : std::move(piece));
    const Type type = hole                       ? Type::kUnused
                      : tokenizer.is_special(id) ? Type::kControl
                                                 : Type::kNormal;
    result.types.push_back(static_cast<int32_t>(type));
  }
}

void put_special(const Tokenizer& tokenizer, GgufTokenizer& result) {
  const SpecialTokens special = tokenizer.special();
  result.begin_id = special.begin_of_text;
  result.end_id = special.end_of_text;
  result.pad_id = special.pad;
  result.mask_id = special.mask;
  result.unknown_id = special.unknown;
  const AroundText around = around_text(tokenizer);
  TEMPERA_CHECK(around.before.size() <= 1 && around.after.size() <= 1, "the tokenizer puts ",
                around.before.size(), " tokens before a text and ", around.after.size(),
                " behind it; GGUF has words for one each", kWithout);
  result.add_begin = !around.before.empty();
  result.add_end = !around.after.empty();
  if (*result.add_begin) result.begin_id = around.before[0];
  if (*result.add_end) result.end_id = around.after[0];
}

// Added tokens that are not special are found in the text all the same.
void put_added(const json& document, const std::string& where, GgufTokenizer& result) {
  const JsonFields root(document, where);
  if (root.find("added_tokens") == nullptr) return;
  for (const auto& entry : root.array("added_tokens")) {
    const JsonFields token(entry, where);
    for (const char* name : {"lstrip", "rstrip", "single_word"})
      TEMPERA_CHECK(!token.flag_or(name, false), where, ": the added token '",
                    token.text("content"), "' has \"", name, "\", which GGUF has no words for",
                    kWithout);
    if (!token.flag_or("special", false))
      set_type(result, static_cast<size_t>(token.integer("id")), Type::kUserDefined);
  }
}

std::vector<std::pair<std::string, std::string>> merges_of(const json& model,
                                                           const GgufTokenizer& result) {
  std::set<std::string_view> pieces;
  std::vector<std::pair<std::string, std::string>> merges;
  for (const auto& merge : model["merges"]) {
    if (merge.is_array()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const auto& text = merge.get_ref<const std::string&>();
    if (pieces.empty()) pieces.insert(result.tokens.begin(), result.tokens.end());
    size_t at = text.find(' ');
    while (at != std::string::npos && !(pieces.contains(std::string_view(text).substr(0, at)) &&
                                        pieces.contains(std::string_view(text).substr(at + 1))))
      at = text.find(' ', at + 1);
    TEMPERA_CHECK(at != std::string::npos, "the merge '", text, "' is not of two tokens");
    merges.emplace_back(text.substr(0, at), text.substr(at + 1));
  }
  return merges;
}

void put_byte_level(const json& document, const std::string& where, GgufTokenizer& result) {
  const json& model = document["model"];
  const json normalizer = document.value("normalizer", json());
  const json pre_tokenizer = document.value("pre_tokenizer", json());
  const auto name = gguf_split_name(normalizer, pre_tokenizer,
                                    JsonFields(model, where).flag_or("ignore_merges", false));
  TEMPERA_CHECK(name, where, " splits words in a way that GGUF has no known name for (normalizer ",
                normalizer.dump(), ", pre_tokenizer ", pre_tokenizer.dump(), ")", kWithout);
  result.model = "gpt2";
  result.pre = *name;
  for (const auto& [left, right] : merges_of(model, result)) {
    TEMPERA_CHECK((left + right).find(' ') == std::string::npos, where, ": the merge of '", left,
                  "' and '", right, "' holds a blank, which GGUF has no words for", kWithout);
    result.merges.push_back(concat(left, " ", right));
  }
}

// Whether a text gets a blank in front, and others are dropped. Throws for steps other than those
// of sentencepiece.
void put_blanks(const json& document, const std::string& where, GgufTokenizer& result) {
  json wanted = json::array();
  const json normalizer = document.value("normalizer", json());
  json given = json::array({normalizer});
  if (normalizer.is_object() && normalizer.contains("normalizers"))
    given = normalizer["normalizers"];
  const json squeeze = squeeze_json();
  result.remove_extra_whitespaces = given.size() > 2 && given[0] == squeeze[0];
  if (*result.remove_extra_whitespaces) wanted = squeeze;
  const json prefix = {{"type", "Prepend"}, {"prepend", kBlankMark}};
  result.add_space_prefix = std::find(given.begin(), given.end(), prefix) != given.end();
  if (*result.add_space_prefix) wanted.push_back(prefix);
  wanted.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlankMark}});
  // At blanks, of which there are none any more.
  json pre_tokenizer = document.value("pre_tokenizer", json());
  if (pre_tokenizer.is_object() && pre_tokenizer["type"] == "Split" &&
      pre_tokenizer["pattern"] == json{{"String", " "}})
    pre_tokenizer = nullptr;
  TEMPERA_CHECK(pre_tokenizer.is_null() && given == wanted, where,
                " prepares text in another way than sentencepiece (normalizer ", normalizer.dump(),
                ", pre_tokenizer ", pre_tokenizer.dump(), "), which GGUF has no words for",
                kWithout);
}

// The merges of a file by ids; rank is the place in the list.
std::vector<BpeMerge> ranked_merges(const json& model, const GgufTokenizer& result) {
  IdMap ids;
  for (size_t id = 0; id < result.tokens.size(); ++id)
    ids[result.tokens[id]] = static_cast<int32_t>(id);
  std::vector<BpeMerge> merges;
  for (const auto& [left, right] : merges_of(model, result))
    merges.push_back(
        {ids.at(left), ids.at(right), ids.at(left + right), static_cast<uint32_t>(merges.size())});
  return merges;
}

// Gives the pieces scores that put the merges in the order of the file: the later, the less. Pieces
// whose merges stand mixed have the same score; the programs that make such files order those by
// their left part. Tells whether that explains the order.
bool score_by_order(const std::vector<BpeMerge>& merges, GgufTokenizer& result) {
  std::vector<size_t> last(result.tokens.size());
  for (size_t at = 0; at < merges.size(); ++at) last[static_cast<size_t>(merges[at].result)] = at;
  float score = 0;
  bool explained = true;
  for (size_t begin = 0; begin < merges.size();) {
    size_t end = begin;
    bool mixed = false, by_left = true;
    for (size_t at = begin; at <= end; ++at) {
      end = std::max(end, last[static_cast<size_t>(merges[at].result)]);
      result.scores[static_cast<size_t>(merges[at].result)] = score;
      mixed |= merges[at].result != merges[begin].result;
      by_left &= at == begin || merges[at - 1].left <= merges[at].left;
    }
    explained &= !mixed || by_left;
    begin = end + 1;
    score -= 1;
  }
  return explained;
}

void put_scores(const json& model, const std::string& where, GgufTokenizer& result) {
  const auto merges = ranked_merges(model, result);
  using Pair = std::pair<int32_t, int32_t>;
  std::set<Pair> given, possible;
  for (const BpeMerge& merge : merges) given.emplace(merge.left, merge.right);
  for (const BpeMerge& merge : sentencepiece_merges(sentencepiece_model(result)))
    possible.emplace(merge.left, merge.right);
  TEMPERA_CHECK(given == possible && score_by_order(merges, result), where,
                ": its merges do not follow from scores of the tokens, which is all that GGUF has",
                kWithout);
}

void put_scored(const json& document, const std::string& where, GgufTokenizer& result) {
  const json& model = document["model"];
  result.model = "llama";
  put_blanks(document, where, result);
  result.scores.assign(result.tokens.size(), 0);
  for (size_t id = 0; id < result.tokens.size(); ++id) {
    if (byte_of_piece(result.tokens[id])) set_type(result, id, Type::kByte);
    TEMPERA_CHECK(
        !*result.add_space_prefix || result.types[id] != static_cast<int32_t>(Type::kUserDefined),
        where, ": the added token '", result.tokens[id],
        "' is not special, and a blank goes before texts; GGUF would put none behind it", kWithout);
  }
  TEMPERA_CHECK(result.unknown_id, where, " has no unknown token, which GGUF needs", kWithout);
  set_type(result, static_cast<size_t>(*result.unknown_id), Type::kUnknown);
  put_scores(model, where, result);
}

void put_json(const json& document, const std::string& where, GgufTokenizer& result) {
  put_added(document, where, result);
  const JsonFields model(document["model"], where);
  TEMPERA_CHECK(model.find("merges") != nullptr &&
                    model.text_or("continuing_subword_prefix", "").empty() &&
                    model.text_or("end_of_word_suffix", "").empty(),
                where, " is no byte-level BPE and none of sentencepiece; others are not written",
                " to GGUF yet", kWithout);
  if (model.flag_or("byte_fallback", false))
    put_scored(document, where, result);
  else
    put_byte_level(document, where, result);
}

void put_sentencepiece(const SentencePieceModel& model, const std::string& where,
                       GgufTokenizer& result) {
  const bool bpe = model.algorithm == SentencePieceModel::Algorithm::kBpe;
  TEMPERA_CHECK(!bpe || model.charsmap.empty(), where,
                " is BPE with rules for characters, which GGUF has no words for", kWithout);
  result.model = bpe ? "llama" : "t5";
  result.charsmap = model.charsmap;
  result.add_space_prefix = model.add_dummy_prefix;
  result.remove_extra_whitespaces = model.remove_extra_whitespaces;
  result.scores.assign(result.tokens.size(), 0);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    result.scores[id] = model.pieces[id].score;
    set_type(result, id, model.pieces[id].type);
  }
}

}  // namespace

GgufTokenizer gguf_tokenizer_of(const fs::path& folder, int64_t rows) {
  const auto tokenizer = load_tokenizer(folder);
  const fs::path file = tokenizer_file(folder);
  const std::string where = file.string();
  GgufTokenizer result;
  put_tokens(*tokenizer, rows, result);
  put_special(*tokenizer, result);
  if (file.filename() == "tokenizer.json") {
    put_json(io::parse_json(read_file(file, kLargestFile), where), where, result);
  } else if (file.filename() == "tokenizer.model") {
    put_sentencepiece(parse_sentencepiece(read_file(file, kLargestFile), where), where, result);
  } else {
    throw Error(concat(where, " is not written to GGUF yet; tokenizer.json and tokenizer.model are",
                       kWithout));
  }
  make_tokenizer(result);  // what we write, we can read
  return result;
}

}  // namespace tempera::text
