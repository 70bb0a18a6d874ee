#include "tempera/families/fields.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"

namespace tempera::families {
namespace {

// What transformers writes into every configuration and what concerns other jobs than ours.
constexpr std::string_view kHarmless[] = {"_name_or_path",
                                          "architectures",
                                          "auto_map",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "classifier_dropout",
                                          "decoder_start_token_id",
                                          "dtype",
                                          "eos_token_id",
                                          "finetuning_task",
                                          "id2label",
                                          "initializer_range",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "model_type",
                                          "num_labels",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "pad_token_id",
                                          "prefix",
                                          "problem_type",
                                          "return_dict",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "tempera",
                                          "tokenizer_class",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "unk_token_id",
                                          "use_cache",
                                          "transformers.js_config"};

bool switches_on(const nlohmann::json& value) {
  return !value.is_null() && value != false &&
         !((value.is_array() || value.is_object()) && value.empty());
}

}  // namespace

Fields Fields::reader(const Json& json, std::string where) {
  TEMPERA_CHECK(json.is_object(), where, ": an object expected");
  Fields fields;
  fields.json_ = json;
  fields.where_ = std::move(where);
  fields.reading_ = true;
  return fields;
}

Fields Fields::writer() {
  Fields fields;
  fields.json_ = Json::object();
  return fields;
}

const Fields::Json* Fields::find(std::string_view key) {
  seen_.emplace(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

template <class T>
const Fields::Json* Fields::find_or(std::string_view key, T& member,
                                    const std::optional<T>& fallback) {
  const Json* value = find(key);
  if (value) return value;
  TEMPERA_CHECK(fallback, where_, ": the field ", key, " is missing");
  member = *fallback;
  return nullptr;
}

void Fields::integer(std::string_view key, int64_t& member, std::optional<int64_t> fallback) {
  if (!reading_) return set(key, member);
  const Json* value = find_or(key, member, fallback);
  if (!value) return;
  // Some writers give whole numbers as 4096.0.
  const bool whole =
      value->is_number_float() && std::floor(value->get<double>()) == value->get<double>();
  // Products of two of them have to fit 64 bits.
  constexpr double kMost = 1LL << 31;
  TEMPERA_CHECK((value->is_number_integer() || whole) && std::abs(value->get<double>()) <= kMost,
                where_, ": ", key, ": ", value->dump(),
                " given, a whole number of at most 2^31 expected");
  member = whole ? static_cast<int64_t>(value->get<double>()) : value->get<int64_t>();
}

void Fields::number(std::string_view key, double& member, std::optional<double> fallback) {
  if (!reading_) return set(key, member);
  const Json* value = find_or(key, member, fallback);
  if (!value) return;
  TEMPERA_CHECK(value->is_number() && std::isfinite(value->get<double>()), where_, ": ", key, ": ",
                value->dump(), " given, a number expected");
  member = value->get<double>();
}

void Fields::flag(std::string_view key, bool& member, bool fallback) {
  if (!reading_) return set(key, member);
  const Json* value = find(key);
  TEMPERA_CHECK(!value || value->is_boolean(), where_, ": ", key, ": ", value ? value->dump() : "",
                " given, true or false expected");
  member = value ? value->get<bool>() : fallback;
}

void Fields::one_of(std::string_view key, std::string& word,
                    const std::optional<std::string>& fallback,
                    const std::vector<std::string>& known) {
  if (!reading_) return set(key, word);
  const Json* value = find_or(key, word, fallback);
  if (!value) return;
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  TEMPERA_CHECK(value->is_string() && std::ranges::count(known, value->get<std::string>()) > 0,
                where_, ": ", key, ": ", value->dump(), " is not supported; known: ", list);
  word = value->get<std::string>();
}

void Fields::fixed(std::string_view key, const Json& expected) {
  if (!reading_) return set(key, expected);
  const Json* value = find(key);
  TEMPERA_CHECK(!value || *value == expected, where_, ": ", key, ": ", value ? value->dump() : "",
                " is not supported; only ", expected.dump(), " is");
}

void Fields::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) seen_.emplace(key);
}

void Fields::finish() const {
  if (!reading_) return;
  std::string unknown;
  for (const auto& [key, value] : json_.items()) {
    if (seen_.contains(key) || std::ranges::count(kHarmless, key) > 0 || !switches_on(value))
      continue;
    unknown += (unknown.empty() ? "" : ", ") + key + " = " + value.dump().substr(0, 60);
  }
  TEMPERA_CHECK(unknown.empty(), where_, ": unknown fields: ", unknown,
                "; a model is never run with a part of it left out: remove a field that has no "
                "meaning for the logits, or use a model of a known family");
}

}  // namespace tempera::families
