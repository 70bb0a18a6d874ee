#include "tempera/text/gguf_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/bpe.h"
#include "tempera/text/gguf_splits.h"
#include "tempera/text/pipeline.h"
#include "tempera/text/sentencepiece.h"
#include "tempera/text/tokenizer_json_steps.h"
#include "tempera/text/unicode.h"
#include "tempera/text/wordpiece.h"

namespace tempera::text {
namespace {

using Type = SentencePieceModel::Type;

Type type_of(const GgufTokenizer& description, size_t id) {
  return description.types.empty() ? Type::kNormal : static_cast<Type>(description.types[id]);
}

void check(const GgufTokenizer& description) {
  TEMPERA_CHECK(!description.tokens.empty(), "the GGUF file's tokenizer has no tokens");
  TEMPERA_CHECK(description.types.empty() || description.types.size() == description.tokens.size(),
                "the GGUF file's tokenizer has ", description.tokens.size(), " tokens and ",
                description.types.size(), " types");
  for (const int32_t type : description.types)
    TEMPERA_CHECK(type >= 1 && type <= 6, "the GGUF file's tokenizer has a token of the type ",
                  type, "; 1 to 6 are known");
}

std::optional<int32_t> in_range(std::optional<int64_t> id, const GgufTokenizer& description) {
  if (!id || *id < 0 || *id >= static_cast<int64_t>(description.tokens.size())) return {};
  return static_cast<int32_t>(*id);
}

void put_special_ids(const GgufTokenizer& description, TokenizerParts& parts) {
  const auto set = [&](std::optional<int32_t>& id, std::optional<int64_t> given) {
    if (given) id = in_range(given, description);
  };
  set(parts.special.begin_of_text, description.begin_id);
  set(parts.special.end_of_text, description.end_id);
  set(parts.special.pad, description.pad_id);
  set(parts.special.mask, description.mask_id);
  set(parts.special.unknown, description.unknown_id);
}

void put_around(std::optional<int32_t> before, std::optional<int32_t> after,
                TokenizerParts& parts) {
  parts.before.clear();
  parts.after.clear();
  if (before) parts.before.push_back(*before);
  if (after) parts.after.push_back(*after);
}

// Tokens that are found before the model, whole; with their spelling in the file.
void add_tokens(const GgufTokenizer& description, TokenizerParts& parts) {
  for (size_t id = 0; id < description.tokens.size(); ++id) {
    const Type type = type_of(description, id);
    const bool special = type == Type::kControl || type == Type::kUnknown;
    const std::string content = valid_utf8(description.tokens[id]);
    parts.vocabulary.add(content, static_cast<int64_t>(id));
    if ((special || type == Type::kUserDefined) && !content.empty())
      parts.added.push_back({.content = content,
                             .id = static_cast<int32_t>(id),
                             .special = special,
                             .outside_model = true});
  }
}

TokenizerParts byte_level_parts(const GgufTokenizer& description) {
  TokenizerParts parts;
  parts.kind = "bpe";
  add_tokens(description, parts);
  const GgufSplit& split = find_gguf_split(description.pre);
  const std::string where = concat("the steps of '", description.pre, "'");
  if (!split.normalizer.is_null()) add_normalizers(split.normalizer, where, parts.normalizers);
  const bool bytes = add_pre_tokenizers(split.pre_tokenizer, where, true, parts.pre_tokenizers);
  std::vector<BpeMerge> merges;
  for (const std::string& merge : description.merges)
    merges.push_back(Bpe::parse_merge(parts.vocabulary, merge, merges.size(), {}));
  parts.model = std::make_unique<Bpe>(parts.vocabulary, std::move(merges),
                                      BpeOptions{.whole_words = split.whole_words, .bytes = bytes},
                                      parts.never());
  parts.decoders.push_back(byte_level_decoder());
  put_special_ids(description, parts);
  put_around(
      description.add_begin.value_or(split.add_begin) ? parts.special.begin_of_text : std::nullopt,
      description.add_end.value_or(false) ? parts.special.end_of_text : std::nullopt, parts);
  return parts;
}

TokenizerParts sentencepiece_parts_of(const GgufTokenizer& description) {
  TokenizerParts parts = sentencepiece_parts(sentencepiece_model(description));
  put_special_ids(description, parts);
  return parts;
}

// BERT's pieces are turned around in GGUF: what starts a word has a mark, what continues one has
// none.
std::string bert_piece(const std::string& token, Type type) {
  if (type != Type::kNormal || token.starts_with('[')) return token;
  if (token.starts_with(kBlankMark)) return token.substr(kBlankMark.size());
  return "##" + token;
}

// An uncased vocabulary has no capital letters; the file does not tell otherwise.
bool has_capitals(const GgufTokenizer& description) {
  return std::any_of(
      description.tokens.begin(), description.tokens.end(), [](const std::string& token) {
        return !token.starts_with('[') &&
               std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
      });
}

TokenizerParts wordpiece_parts(GgufTokenizer description) {
  const bool lower = !has_capitals(description);
  for (size_t id = 0; id < description.tokens.size(); ++id)
    description.tokens[id] = bert_piece(description.tokens[id], type_of(description, id));
  TokenizerParts parts;
  parts.kind = "wordpiece";
  add_tokens(description, parts);
  put_special_ids(description, parts);
  const auto begin =
      in_range(description.class_id ? description.class_id : description.begin_id, description);
  const auto end = in_range(
      description.separator_id ? description.separator_id : description.end_id, description);
  parts.special.begin_of_text = begin;
  parts.special.end_of_text = end;
  put_around(begin, end, parts);
  parts.guess_special();
  parts.normalizers.push_back(bert_normalizer({.strip_accents = lower, .lowercase = lower}));
  parts.pre_tokenizers.push_back(white_space_pre_tokenizer());
  parts.pre_tokenizers.push_back(punctuation_pre_tokenizer(SplitBehavior::kIsolated));
  const int32_t unknown = parts.special.unknown
                              ? *parts.special.unknown
                              : parts.vocabulary.at("[UNK]", "the GGUF file's tokenizer");
  parts.model = std::make_unique<WordPiece>(parts.vocabulary, WordPieceOptions{.unknown = unknown},
                                            parts.never());
  parts.decoders.push_back(wordpiece_decoder("##", true));
  return parts;
}

}  // namespace

GgufTokenizer read_gguf_tokenizer(const io::GgufMetadata& metadata) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  TEMPERA_CHECK(metadata.find(key("model")) != nullptr,
                "the GGUF file holds no tokenizer (tokenizer.ggml.model)");
  GgufTokenizer result;
  result.model = metadata.get<std::string>(key("model"));
  result.pre = metadata.get_or<std::string>(key("pre"), "");
  result.tokens = metadata.get<std::vector<std::string>>(key("tokens"));
  for (const double score : metadata.get_or<std::vector<double>>(key("scores"), {}))
    result.scores.push_back(static_cast<float>(score));
  for (const int64_t type : metadata.get_or<std::vector<int64_t>>(key("token_type"), {}))
    result.types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, 0, 7)));
  result.merges = metadata.get_or<std::vector<std::string>>(key("merges"), {});
  for (const int64_t byte : metadata.get_or<std::vector<int64_t>>(key("precompiled_charsmap"), {}))
    result.charsmap.push_back(static_cast<char>(byte));
  const auto id = [&](const char* name) -> std::optional<int64_t> {
    if (metadata.find(key(name)) == nullptr) return {};
    return metadata.get<int64_t>(key(name));
  };
  const auto flag = [&](const char* name) -> std::optional<bool> {
    if (metadata.find(key(name)) == nullptr) return {};
    return metadata.get<bool>(key(name));
  };
  result.begin_id = id("bos_token_id");
  result.end_id = id("eos_token_id");
  result.unknown_id = id("unknown_token_id");
  result.separator_id = id("seperator_token_id");  // spelled so in the files
  if (!result.separator_id) result.separator_id = id("separator_token_id");
  result.pad_id = id("padding_token_id");
  result.class_id = id("cls_token_id");
  result.mask_id = id("mask_token_id");
  result.add_begin = flag("add_bos_token");
  result.add_end = flag("add_eos_token");
  result.add_space_prefix = flag("add_space_prefix");
  result.remove_extra_whitespaces = flag("remove_extra_whitespaces");
  return result;
}

SentencePieceModel sentencepiece_model(const GgufTokenizer& description) {
  const bool unigram = description.model == "t5";
  TEMPERA_CHECK(description.scores.size() == description.tokens.size(),
                "the GGUF file's tokenizer has ", description.tokens.size(), " tokens and ",
                description.scores.size(), " scores");
  SentencePieceModel model;
  model.algorithm =
      unigram ? SentencePieceModel::Algorithm::kUnigram : SentencePieceModel::Algorithm::kBpe;
  bool unknown = false;
  for (size_t id = 0; id < description.tokens.size(); ++id) {
    Type type = type_of(description, id);
    // Some files mark more than one; the model has one.
    const bool is_unknown = description.unknown_id
                                ? *description.unknown_id == static_cast<int64_t>(id)
                                : type == Type::kUnknown && !unknown;
    if (is_unknown)
      type = Type::kUnknown;
    else if (type == Type::kUnknown)
      type = Type::kControl;
    unknown |= is_unknown;
    model.byte_fallback |= type == Type::kByte;
    model.pieces.push_back({valid_utf8(description.tokens[id]), description.scores[id], type});
  }
  model.charsmap = description.charsmap;
  model.add_dummy_prefix = description.add_space_prefix.value_or(true);
  model.remove_extra_whitespaces = description.remove_extra_whitespaces.value_or(false);
  model.begin_id = description.begin_id.value_or(unigram ? -1 : 1);
  model.end_id = description.end_id.value_or(unigram ? 1 : 2);
  model.pad_id = description.pad_id.value_or(-1);
  model.add_begin = description.add_begin.value_or(!unigram);
  model.add_end = description.add_end.value_or(unigram);
  return model;
}

void write_gguf_tokenizer(const GgufTokenizer& description, io::GgufMetadata& metadata) {
  const auto add = [&](const char* name, io::GgufValue value) {
    metadata.add(std::string("tokenizer.ggml.") + name, std::move(value));
  };
  const auto add_id = [&](const char* name, std::optional<int64_t> id) {
    if (id) add(name, static_cast<uint32_t>(*id));
  };
  const auto add_flag = [&](const char* name, std::optional<bool> flag) {
    if (flag) add(name, *flag);
  };
  add("model", description.model);
  if (!description.pre.empty()) add("pre", description.pre);
  add("tokens", io::GgufArray(description.tokens));
  if (!description.scores.empty()) add("scores", io::GgufArray(description.scores));
  if (!description.types.empty()) add("token_type", io::GgufArray(description.types));
  if (!description.merges.empty()) add("merges", io::GgufArray(description.merges));
  if (!description.charsmap.empty())
    add("precompiled_charsmap", io::GgufArray(std::vector<uint8_t>(description.charsmap.begin(),
                                                                   description.charsmap.end())));
  add_id("bos_token_id", description.begin_id);
  add_id("eos_token_id", description.end_id);
  add_id("unknown_token_id", description.unknown_id);
  add_id("seperator_token_id", description.separator_id);
  add_id("padding_token_id", description.pad_id);
  add_id("cls_token_id", description.class_id);
  add_id("mask_token_id", description.mask_id);
  add_flag("add_bos_token", description.add_begin);
  add_flag("add_eos_token", description.add_end);
  add_flag("add_space_prefix", description.add_space_prefix);
  add_flag("remove_extra_whitespaces", description.remove_extra_whitespaces);
}

std::unique_ptr<Tokenizer> make_tokenizer(const GgufTokenizer& description) {
  check(description);
  if (description.model == "gpt2") return make_tokenizer(byte_level_parts(description));
  if (description.model == "llama" || description.model == "t5")
    return make_tokenizer(sentencepiece_parts_of(description));
  if (description.model == "bert") return make_tokenizer(wordpiece_parts(description));
  const std::vector<std::string> known{"gpt2", "llama", "bert", "t5"};
  throw Error(concat("the GGUF file has a tokenizer of the model '", description.model,
                     "', which is not known", did_you_mean(description.model, known),
                     "; known are gpt2, llama, bert and t5"));
}

}  // namespace tempera::text
