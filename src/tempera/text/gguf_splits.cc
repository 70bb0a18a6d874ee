#include "tempera/text/gguf_splits.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/scanner.h"
#include "tempera/text/tokenizer_json_writer.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

using nlohmann::json;

json split(const std::string& pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

json digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }

json sequence(const std::vector<json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

GgufSplit gpt2() { return {.pre_tokenizer = byte_level_json(true)}; }

// GPT-NeoX and what took over its tokenizer.
GgufSplit neox() {
  return {.normalizer = {{"type", "NFC"}}, .pre_tokenizer = byte_level_json(true)};
}

GgufSplit single_digits() {
  return {.pre_tokenizer = sequence({digits(true), byte_level_json(true)})};
}

GgufSplit llama3(bool whole_words) {
  return {.whole_words = whole_words,
          .add_begin = whole_words,
          .pre_tokenizer = sequence({split(kLlama3Pattern), byte_level_json(false)})};
}

GgufSplit qwen2() {
  return {.normalizer = {{"type", "NFC"}},
          .pre_tokenizer = sequence({split(kQwen2Pattern), byte_level_json(false)})};
}

// Splits after the bytes became characters, so some of those count as digits.
GgufSplit falcon() {
  return {.pre_tokenizer = sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                                     byte_level_json(true),
                                     digits(false),
                                     split("[0-9][0-9][0-9]")})};
}

// \x{B5} and the like as the characters themselves, which is how files spell them.
std::string with_characters(std::string_view pattern) {
  std::string result;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const size_t end = pattern.find('}', at);
    if (!pattern.substr(at).starts_with("\\x{") || end == std::string_view::npos) {
      result += pattern[at];
      continue;
    }
    uint32_t code = 0;
    std::from_chars(pattern.data() + at + 3, pattern.data() + end, code, 16);
    append_utf8(result, static_cast<char32_t>(code));
    at = end;
  }
  return result;
}

// Letters with case, as the authors of DeepSeek list them.
constexpr const char* kDeepseekLetters =
    "\\s?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";

GgufSplit deepseek_llm() {
  return {.add_begin = true,
          .pre_tokenizer =
              sequence({split("[\r\n]"), split(with_characters(kDeepseekLetters)),
                        split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split("\\s+$"),
                        split("[一-龥ࠀ-一가-퟿]+"), digits(true), byte_level_json(false)})};
}

// Of the names with the same steps, the first is the one that files get.
const std::vector<std::pair<std::string, GgufSplit>>& splits() {
  static const std::vector<std::pair<std::string, GgufSplit>> table{
      {"gpt-2", gpt2()},
      {"jais", gpt2()},
      {"olmo", neox()},
      {"mpt", neox()},
      {"gpt-neox", neox()},
      {"smollm", single_digits()},
      {"starcoder", single_digits()},
      {"refact", single_digits()},
      {"granite", single_digits()},
      {"codeshell", single_digits()},
      {"command-r", single_digits()},
      {"llama-bpe", llama3(true)},
      {"llama3", llama3(true)},
      {"llama-v3", llama3(true)},
      {"smaug-bpe", llama3(false)},
      {"dbrx", llama3(false)},
      {"qwen2", qwen2()},
      {"deepseek-r1-qwen", qwen2()},
      {"falcon", falcon()},
      {"deepseek-llm", deepseek_llm()},
  };
  return table;
}

bool flag(const json& step, const char* name, bool fallback) {
  const auto found = step.find(name);
  return found == step.end() || !found->is_boolean() ? fallback : found->get<bool>();
}

// What decides about ids in a step, so that two of the same meaning are equal.
json essence(json step) {
  if (!step.is_object() || !step.contains("type")) return step;
  if (step["type"] == "ByteLevel")
    return byte_level_json(flag(step, "use_regex", true), flag(step, "add_prefix_space", true));
  if (step["type"] == "Split") step["invert"] = flag(step, "invert", false);
  if (step["type"] == "Digits") return digits(flag(step, "individual_digits", false));
  return step;
}

void append_steps(const json& step, const char* list, std::vector<json>& steps) {
  if (step.is_null()) return;
  if (!step.is_object() || !step.contains(list)) {
    steps.push_back(essence(step));
    return;
  }
  for (const auto& inner : step[list]) append_steps(inner, list, steps);
}

// The steps one after the other. GPT-2's pattern can stand in ByteLevel, or before it.
std::vector<json> flat(const json& step, const char* list) {
  std::vector<json> steps;
  append_steps(step, list, steps);
  for (size_t at = 0; at + 1 < steps.size(); ++at)
    if (steps[at] == split(kGpt2Pattern) && steps[at + 1] == byte_level_json(false)) {
      steps[at] = byte_level_json(true);
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  return steps;
}

}  // namespace

const GgufSplit& find_gguf_split(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const auto& [known, entry] : splits()) {
    if (known == name) return entry;
    names.push_back(known);
    list += (list.empty() ? "" : ", ") + known;
  }
  throw Error(concat("the GGUF file splits words as '", name,
                     "' (tokenizer.ggml.pre), which is not known", did_you_mean(name, names),
                     "; known are ", list, "; a tokenizer.json of the model can be used instead"));
}

std::optional<std::string> gguf_split_name(const json& normalizer, const json& pre_tokenizer,
                                           bool whole_words) {
  const auto normalizers = flat(normalizer, "normalizers");
  const auto pre_tokenizers = flat(pre_tokenizer, "pretokenizers");
  for (const auto& [name, entry] : splits())
    if (entry.whole_words == whole_words && flat(entry.normalizer, "normalizers") == normalizers &&
        flat(entry.pre_tokenizer, "pretokenizers") == pre_tokenizers)
      return name;
  return {};
}

}  // namespace tempera::text
