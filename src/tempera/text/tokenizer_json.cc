#include "tempera/text/tokenizer_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/json.h"
#include "tempera/text/bpe.h"
#include "tempera/text/json_fields.h"
#include "tempera/text/tokenizer_json_steps.h"
#include "tempera/text/unigram.h"
#include "tempera/text/wordpiece.h"

namespace tempera::text {
namespace {

using nlohmann::json;

// Pieces with their ids, as BPE and WordPiece have them.
void read_vocabulary(const JsonFields& model, Vocabulary& vocabulary) {
  const JsonFields pieces(model.at("vocab"), model.where() + " vocab");
  for (const auto& [piece, id] : model.at("vocab").items()) {
    TEMPERA_CHECK(id.is_number_unsigned() && id.get<uint64_t>() < uint64_t{1} << 32, pieces.where(),
                  ": '", piece, "' has the id ", id.dump(), "; an integer from 0 is expected");
    vocabulary.add(piece, id.get<int64_t>());
  }
}

std::vector<BpeMerge> read_merges(const JsonFields& model, const Vocabulary& vocabulary,
                                  const std::string& prefix) {
  std::vector<BpeMerge> merges;
  for (const auto& merge : model.array("merges")) {
    const size_t rank = merges.size();
    if (merge.is_string()) {
      merges.push_back(
          Bpe::parse_merge(vocabulary, merge.get_ref<const std::string&>(), rank, prefix));
    } else {
      TEMPERA_CHECK(
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          model.where(), ": merge ", rank + 1, " is not a pair of pieces");
      merges.push_back(Bpe::merge_of(vocabulary, merge[0].get_ref<const std::string&>(),
                                     merge[1].get_ref<const std::string&>(), rank, prefix));
    }
  }
  return merges;
}

void read_bpe(const JsonFields& model, bool bytes, TokenizerParts& parts) {
  model.only({"vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix",
              "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
  const auto* dropout = model.find("dropout");
  TEMPERA_CHECK(dropout == nullptr || (dropout->is_number() && dropout->get<double>() == 0),
                model.where(), ": a dropout of merges gives other ids every time; remove it");
  BpeOptions options{.fuse_unknown = model.flag_or("fuse_unk", false),
                     .byte_fallback = model.flag_or("byte_fallback", false),
                     .whole_words = model.flag_or("ignore_merges", false),
                     .bytes = bytes,
                     .prefix = model.text_or("continuing_subword_prefix", ""),
                     .suffix = model.text_or("end_of_word_suffix", "")};
  if (model.find("unk_token") != nullptr)
    options.unknown = parts.vocabulary.at(model.text("unk_token"), "unk_token");
  parts.special.unknown = options.unknown;
  auto merges = read_merges(model, parts.vocabulary, options.prefix);
  parts.model =
      std::make_unique<Bpe>(parts.vocabulary, std::move(merges), std::move(options), parts.never());
}

// Whether words can go to BPE as bytes, without byte-level characters in between.
bool takes_bytes(const JsonFields& model) {
  return !model.flag_or("byte_fallback", false) &&
         model.text_or("continuing_subword_prefix", "").empty() &&
         model.text_or("end_of_word_suffix", "").empty();
}

std::vector<double> read_scored_vocabulary(const JsonFields& model, Vocabulary& vocabulary) {
  std::vector<double> scores;
  for (const auto& entry : model.array("vocab")) {
    TEMPERA_CHECK(entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                      entry[1].is_number() && std::isfinite(entry[1].get<double>()),
                  model.where(), ": piece ", scores.size(), " is not a pair of text and score");
    vocabulary.add(entry[0].get_ref<const std::string&>(), static_cast<int64_t>(scores.size()));
    scores.push_back(entry[1].get<double>());
  }
  TEMPERA_CHECK(!scores.empty(), model.where(), " has no pieces");
  return scores;
}

void read_unigram(const JsonFields& model, std::vector<double> scores, TokenizerParts& parts) {
  model.only({"vocab", "unk_id", "byte_fallback"});
  UnigramOptions options{.byte_fallback = model.flag_or("byte_fallback", false),
                         .unknown_score = *std::min_element(scores.begin(), scores.end()) - 10};
  if (model.find("unk_id") != nullptr) {
    const int64_t id = model.integer("unk_id");
    TEMPERA_CHECK(id >= 0 && id < static_cast<int64_t>(scores.size()), model.where(),
                  ": unk_id is ", id, "; there are ", scores.size(), " pieces");
    options.unknown = static_cast<int32_t>(id);
  }
  parts.special.unknown = options.unknown;
  parts.model =
      std::make_unique<Unigram>(parts.vocabulary, std::move(scores), options, parts.never());
}

void read_wordpiece(const JsonFields& model, TokenizerParts& parts) {
  model.only({"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
  const int32_t unknown = parts.vocabulary.at(model.text_or("unk_token", "[UNK]"), "unk_token");
  parts.special.unknown = unknown;
  parts.model = std::make_unique<WordPiece>(
      parts.vocabulary,
      WordPieceOptions{.unknown = unknown,
                       .prefix = model.text_or("continuing_subword_prefix", "##"),
                       .longest_word = model.integer_or("max_input_chars_per_word", 100)},
      parts.never());
}

// Older files leave the type out.
std::string model_type(const JsonFields& model) {
  if (model.find("type") != nullptr) return model.text("type");
  if (model.find("merges") != nullptr) return "BPE";
  const auto* vocabulary = model.find("vocab");
  if (vocabulary != nullptr && vocabulary->is_array()) return "Unigram";
  return "WordPiece";
}

void read_added_tokens(const JsonFields& root, const Normalizers& normalizers,
                       TokenizerParts& parts) {
  if (root.find("added_tokens") == nullptr) return;
  size_t index = 0;
  for (const auto& entry : root.array("added_tokens")) {
    const JsonFields fields(entry, concat(root.where(), ": added token ", ++index));
    fields.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const int64_t id = fields.integer("id");
    TEMPERA_CHECK(id >= 0 && id < std::numeric_limits<int32_t>::max(), fields.where(),
                  " has the id ", id);
    AddedToken token{.content = fields.text("content"),
                     .id = static_cast<int32_t>(id),
                     .special = fields.flag_or("special", false),
                     .lstrip = fields.flag_or("lstrip", false),
                     .rstrip = fields.flag_or("rstrip", false),
                     .single_word = fields.flag_or("single_word", false),
                     .normalized = fields.flag_or("normalized", true)};
    if (token.content.empty()) continue;
    token.pattern = token.content;
    if (token.normalized)
      for (const auto& normalizer : normalizers) normalizer->apply(token.pattern);
    parts.add_token(std::move(token));
  }
}

bool is_known_id(const json& id, const Vocabulary& vocabulary) {
  return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocabulary.size()) &&
         !vocabulary.piece(id.get<int32_t>()).empty();
}

void append_template(const JsonFields& processor, TokenizerParts& parts) {
  processor.only({"single", "pair", "special_tokens"});
  std::vector<int32_t> before, after;
  bool seen_text = false;
  for (const auto& item : processor.array("single")) {
    const JsonFields fields(item, processor.where());
    fields.only({"Sequence", "SpecialToken"});
    if (fields.find("Sequence") != nullptr) {
      const JsonFields sequence(fields.at("Sequence"), processor.where());
      TEMPERA_CHECK(!seen_text && sequence.text("id") == "A", processor.where(),
                    ": \"single\" has to hold the text A once");
      seen_text = true;
      continue;
    }
    const JsonFields named(fields.at("SpecialToken"), processor.where());
    const JsonFields tokens(processor.at("special_tokens"), processor.where() + " special_tokens");
    const std::string name = named.text("id");
    const JsonFields token(tokens.at(name.c_str()), processor.where() + " special_tokens");
    for (const auto& id : token.array("ids")) {
      TEMPERA_CHECK(is_known_id(id, parts.vocabulary), processor.where(), ": '", name,
                    "' has the id ", id.dump(), ", which is not in the vocabulary");
      (seen_text ? after : before).push_back(id.get<int32_t>());
    }
  }
  TEMPERA_CHECK(seen_text, processor.where(), ": \"single\" has to hold the text A once");
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

void append_class_and_separator(const JsonFields& processor, TokenizerParts& parts) {
  processor.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
  const auto id = [&](const char* name) {
    const auto& pair = processor.array(name);
    TEMPERA_CHECK(pair.size() == 2 && is_known_id(pair[1], parts.vocabulary), processor.where(),
                  ": \"", name, "\" is not a token with its id");
    return pair[1].get<int32_t>();
  };
  parts.before.insert(parts.before.begin(), id("cls"));
  parts.after.push_back(id("sep"));
}

void read_post_processor(const json& object, const std::string& where, TokenizerParts& parts) {
  const JsonFields processor(object, where);
  const std::string type = processor.text("type");
  if (type == "TemplateProcessing") {
    append_template(processor, parts);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    append_class_and_separator(processor, parts);
  } else if (type == "Sequence") {
    processor.only({"processors"});
    for (const auto& step : processor.array("processors")) read_post_processor(step, where, parts);
  } else {
    // ByteLevel trims offsets, which are not kept here.
    TEMPERA_CHECK(type == "ByteLevel", where, " has the type '", type,
                  "', which is not known; known are BertProcessing, ByteLevel, RobertaProcessing, "
                  "Sequence, TemplateProcessing");
  }
}

void read_model(const JsonFields& model, const JsonFields& root, TokenizerParts& parts) {
  const std::string type = model_type(model);
  std::vector<double> scores;
  if (type == "Unigram") {
    scores = read_scored_vocabulary(model, parts.vocabulary);
  } else {
    TEMPERA_CHECK(type == "BPE" || type == "WordPiece", model.where(), " has the type '", type,
                  "', which is not known; known are BPE, Unigram, WordPiece");
    read_vocabulary(model, parts.vocabulary);
  }
  // A model has to know which ids text must never give.
  read_added_tokens(root, parts.normalizers, parts);
  bool bytes = false;
  if (const auto* steps = root.find("pre_tokenizer"))
    bytes = add_pre_tokenizers(*steps, root.where() + ": pre_tokenizer",
                               type == "BPE" && takes_bytes(model), parts.pre_tokenizers);
  if (type == "BPE") {
    parts.kind = "bpe";
    read_bpe(model, bytes, parts);
  } else if (type == "Unigram") {
    parts.kind = "unigram";
    read_unigram(model, std::move(scores), parts);
  } else {
    parts.kind = "wordpiece";
    read_wordpiece(model, parts);
  }
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& where) {
  const json document = io::parse_json(text, where);
  const JsonFields root(document, where);
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  TokenizerParts parts;
  if (const auto* steps = root.find("normalizer"))
    add_normalizers(*steps, where + ": normalizer", parts.normalizers);
  read_model(JsonFields(root.at("model"), where + ": model"), root, parts);
  if (const auto* processor = root.find("post_processor"))
    read_post_processor(*processor, where + ": post_processor", parts);
  if (const auto* steps = root.find("decoder")) {
    add_decoders(*steps, where + ": decoder", parts.decoders);
  } else {
    parts.decoders.push_back(spaced_decoder());
  }
  return parts;
}

}  // namespace tempera::text
