#include "tempera/text/tokenizer_json_steps.h"

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/base64.h"
#include "tempera/text/charsmap.h"
#include "tempera/text/json_fields.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

using nlohmann::json;

// What makes a step from the fields of its object, by the name of its type.
template <class Step>
using Makers = std::map<std::string, std::function<std::unique_ptr<Step>(const JsonFields&)>>;

template <class Step>
const auto& maker(const Makers<Step>& makers, const std::string& type, const std::string& where) {
  const auto found = makers.find(type);
  if (found != makers.end()) return found->second;
  std::vector<std::string> names{"Sequence"};
  for (const auto& [name, make] : makers) names.push_back(name);
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(concat(where, " has the type '", type, "', which is not known",
                     did_you_mean(type, names), "; known are ", list));
}

// A pattern is {"String": ...} or {"Regex": ...}.
Pattern pattern_field(const JsonFields& fields) {
  const JsonFields pattern(fields.at("pattern"), fields.where() + " pattern");
  pattern.only({"String", "Regex"});
  if (pattern.find("Regex") != nullptr) return Pattern::regex(pattern.text("Regex"));
  return Pattern::literal(pattern.text("String"));
}

template <class Value>
Value choice(const JsonFields& fields, const char* name,
             const std::vector<std::pair<std::string, Value>>& values) {
  const std::string given = fields.text(name);
  std::string list;
  for (const auto& [known, value] : values) {
    if (given == known) return value;
    list += (list.empty() ? "" : ", ") + known;
  }
  throw Error(concat(fields.where(), ": \"", name, "\" is '", given, "'; known are ", list));
}

SplitBehavior behavior_field(const JsonFields& fields) {
  return choice<SplitBehavior>(fields, "behavior",
                               {{"Removed", SplitBehavior::kRemoved},
                                {"Isolated", SplitBehavior::kIsolated},
                                {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                {"Contiguous", SplitBehavior::kContiguous}});
}

std::string one_character(const JsonFields& fields, const char* name) {
  std::string text = fields.text(name);
  TEMPERA_CHECK(!text.empty() && character_at(text, 0).size == text.size(), fields.where(), ": \"",
                name, "\" is '", text, "'; one character is expected");
  return text;
}

PrefixSpace prefix_field(const JsonFields& fields) {
  const bool add = fields.flag_or("add_prefix_space", true);
  if (fields.find("prepend_scheme") == nullptr)
    return add ? PrefixSpace::kAlways : PrefixSpace::kNever;
  const auto prefix = choice<PrefixSpace>(fields, "prepend_scheme",
                                          {{"always", PrefixSpace::kAlways},
                                           {"first", PrefixSpace::kFirst},
                                           {"never", PrefixSpace::kNever}});
  TEMPERA_CHECK(add || prefix == PrefixSpace::kNever, fields.where(),
                ": \"add_prefix_space\" and \"prepend_scheme\" contradict each other");
  return prefix;
}

template <auto make>
auto without_settings(const JsonFields& fields) {
  fields.only({});
  return make();
}

template <NormalForm form>
std::unique_ptr<Normalizer> make_unicode(const JsonFields& fields) {
  fields.only({});
  return unicode_normalizer(form);
}

std::unique_ptr<Normalizer> make_bert(const JsonFields& fields) {
  fields.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lower = fields.flag_or("lowercase", true);
  return bert_normalizer({.clean_text = fields.flag_or("clean_text", true),
                          .handle_chinese_chars = fields.flag_or("handle_chinese_chars", true),
                          .strip_accents = fields.flag_or("strip_accents", lower),
                          .lowercase = lower});
}

const Makers<Normalizer>& normalizer_makers() {
  static const Makers<Normalizer> makers{
      {"NFC", make_unicode<NormalForm::kNfc>},
      {"NFD", make_unicode<NormalForm::kNfd>},
      {"NFKC", make_unicode<NormalForm::kNfkc>},
      {"NFKD", make_unicode<NormalForm::kNfkd>},
      {"BertNormalizer", make_bert},
      {"Lowercase", without_settings<lowercase_normalizer>},
      {"StripAccents", without_settings<strip_accents_normalizer>},
      {"Nmt", without_settings<nmt_normalizer>},
      {"ByteLevel", without_settings<byte_level_normalizer>},
      {"Strip",
       [](const JsonFields& f) {
         f.only({"strip_left", "strip_right"});
         return strip_normalizer(f.flag_or("strip_left", true), f.flag_or("strip_right", true));
       }},
      {"Prepend",
       [](const JsonFields& f) {
         f.only({"prepend"});
         return prepend_normalizer(f.text("prepend"));
       }},
      {"Replace",
       [](const JsonFields& f) {
         f.only({"pattern", "content"});
         return replace_normalizer(pattern_field(f), f.text("content"));
       }},
      {"Precompiled",
       [](const JsonFields& f) {
         f.only({"precompiled_charsmap"});
         return precompiled_normalizer(
             CharsMap(decode_base64(f.text("precompiled_charsmap"), f.where())));
       }},
  };
  return makers;
}

const Makers<PreTokenizer>& pre_tokenizer_makers() {
  static const Makers<PreTokenizer> makers{
      {"Split",
       [](const JsonFields& f) {
         f.only({"pattern", "behavior", "invert"});
         return split_pre_tokenizer(pattern_field(f), behavior_field(f),
                                    f.flag_or("invert", false));
       }},
      {"Digits",
       [](const JsonFields& f) {
         f.only({"individual_digits"});
         return digits_pre_tokenizer(f.flag_or("individual_digits", false));
       }},
      {"Punctuation",
       [](const JsonFields& f) {
         f.only({"behavior"});
         return punctuation_pre_tokenizer(f.find("behavior") == nullptr ? SplitBehavior::kIsolated
                                                                        : behavior_field(f));
       }},
      {"Metaspace",
       [](const JsonFields& f) {
         f.only({"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
         return metaspace_pre_tokenizer(one_character(f, "replacement"), prefix_field(f),
                                        f.flag_or("split", true));
       }},
      {"CharDelimiterSplit",
       [](const JsonFields& f) {
         f.only({"delimiter"});
         return split_pre_tokenizer(Pattern::literal(one_character(f, "delimiter")),
                                    SplitBehavior::kRemoved, false);
       }},
      {"Whitespace", without_settings<words_pre_tokenizer>},
      {"WhitespaceSplit", without_settings<white_space_pre_tokenizer>},
  };
  return makers;
}

ByteLevelOptions byte_level_options(const JsonFields& fields) {
  fields.only({"add_prefix_space", "trim_offsets", "use_regex"});
  return {.add_prefix_space = fields.flag_or("add_prefix_space", true),
          .use_regex = fields.flag_or("use_regex", true)};
}

const Makers<Decoder>& decoder_makers() {
  static const Makers<Decoder> makers{
      {"ByteLevel",
       [](const JsonFields& f) {
         byte_level_options(f);
         return byte_level_decoder();
       }},
      {"ByteFallback", without_settings<byte_fallback_decoder>},
      {"Fuse", without_settings<fuse_decoder>},
      {"Strip",
       [](const JsonFields& f) {
         f.only({"content", "start", "stop"});
         const int64_t start = f.integer_or("start", 0), stop = f.integer_or("stop", 0);
         TEMPERA_CHECK(start >= 0 && stop >= 0, f.where(), ": \"start\" or \"stop\" below 0");
         return strip_decoder(one_character(f, "content"), static_cast<size_t>(start),
                              static_cast<size_t>(stop));
       }},
      {"Replace",
       [](const JsonFields& f) {
         f.only({"pattern", "content"});
         return replace_decoder(pattern_field(f), f.text("content"));
       }},
      {"Metaspace",
       [](const JsonFields& f) {
         f.only({"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
         return metaspace_decoder(one_character(f, "replacement"),
                                  prefix_field(f) != PrefixSpace::kNever);
       }},
      {"WordPiece",
       [](const JsonFields& f) {
         f.only({"prefix", "cleanup"});
         return wordpiece_decoder(f.text_or("prefix", "##"), f.flag_or("cleanup", true));
       }},
      {"BPEDecoder",
       [](const JsonFields& f) {
         f.only({"suffix"});
         return bpe_decoder(f.text_or("suffix", "</w>"));
       }},
  };
  return makers;
}

// The objects of a step in order: its own, or those of the Sequence that it is.
void flatten(const json& object, const std::string& where, const char* list,
             std::vector<JsonFields>& steps) {
  const JsonFields fields(object, where);
  if (fields.text("type") != "Sequence") {
    steps.push_back(fields);
    return;
  }
  fields.only({list});
  size_t index = 0;
  for (const auto& step : fields.array(list))
    flatten(step, concat(where, " ", ++index), list, steps);
}

}  // namespace

void add_normalizers(const json& object, const std::string& where, Normalizers& steps) {
  std::vector<JsonFields> all;
  flatten(object, where, "normalizers", all);
  for (const auto& fields : all)
    steps.push_back(maker(normalizer_makers(), fields.text("type"), fields.where())(fields));
}

void add_decoders(const json& object, const std::string& where, Decoders& steps) {
  std::vector<JsonFields> all;
  flatten(object, where, "decoders", all);
  for (const auto& fields : all)
    steps.push_back(maker(decoder_makers(), fields.text("type"), fields.where())(fields));
}

bool add_pre_tokenizers(const json& object, const std::string& where, bool raw_bytes,
                        PreTokenizers& steps) {
  std::vector<JsonFields> all;
  flatten(object, where, "pretokenizers", all);
  bool raw = false;
  for (const auto& fields : all) {
    const std::string type = fields.text("type");
    if (type == "ByteLevel") {
      auto options = byte_level_options(fields);
      raw = raw_bytes && &fields == &all.back();
      options.map_bytes = !raw;
      steps.push_back(byte_level_pre_tokenizer(options));
    } else if (type == "BertPreTokenizer") {
      fields.only({});
      steps.push_back(white_space_pre_tokenizer());
      steps.push_back(punctuation_pre_tokenizer(SplitBehavior::kIsolated));
    } else {
      steps.push_back(maker(pre_tokenizer_makers(), type, fields.where())(fields));
    }
  }
  return raw;
}

}  // namespace tempera::text
