#include "tempera/text/gguf_splits.h"

#include <map>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/text/scanner.h"

namespace tempera::text {
namespace {

void split(TokenizerParts& parts, const std::string& pattern) {
  parts.pre_tokenizers.push_back(
      split_pre_tokenizer(Pattern::regex(pattern), SplitBehavior::kIsolated, false));
}

void byte_level(TokenizerParts& parts, bool use_regex, bool map_bytes) {
  parts.pre_tokenizers.push_back(byte_level_pre_tokenizer(
      {.add_prefix_space = false, .use_regex = use_regex, .map_bytes = map_bytes}));
}

bool gpt2(TokenizerParts& parts) {
  byte_level(parts, true, false);
  return true;
}

// GPT-NeoX and what took over its tokenizer.
bool neox(TokenizerParts& parts) {
  parts.normalizers.push_back(unicode_normalizer(NormalForm::kNfc));
  return gpt2(parts);
}

bool single_digits(TokenizerParts& parts) {
  parts.pre_tokenizers.push_back(digits_pre_tokenizer(true));
  return gpt2(parts);
}

bool llama3(TokenizerParts& parts) {
  split(parts, kLlama3Pattern);
  return true;
}

bool qwen2(TokenizerParts& parts) {
  parts.normalizers.push_back(unicode_normalizer(NormalForm::kNfc));
  split(parts, kQwen2Pattern);
  return true;
}

// Splits after the bytes became characters, so some of those count as digits.
bool falcon(TokenizerParts& parts) {
  parts.pre_tokenizers.push_back(punctuation_pre_tokenizer(SplitBehavior::kContiguous));
  byte_level(parts, true, true);
  parts.pre_tokenizers.push_back(digits_pre_tokenizer(false));
  split(parts, "[0-9][0-9][0-9]");
  return false;
}

bool deepseek_llm(TokenizerParts& parts) {
  split(parts, "[\r\n]");
  split(parts,
        "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
        "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"
        "Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+");
  split(parts, "\\s?[!-/:-~！-／：-～‘-‟　-。]+");
  split(parts, "\\s+$");
  split(parts, "[一-龥ࠀ-一가-퟿]+");
  parts.pre_tokenizers.push_back(digits_pre_tokenizer(true));
  return true;
}

const std::map<std::string, GgufSplit>& splits() {
  static const std::map<std::string, GgufSplit> table{
      {"gpt-2", {.add_steps = gpt2}},
      {"jais", {.add_steps = gpt2}},
      {"mpt", {.add_steps = neox}},
      {"olmo", {.add_steps = neox}},
      {"gpt-neox", {.add_steps = neox}},
      {"smollm", {.add_steps = single_digits}},
      {"starcoder", {.add_steps = single_digits}},
      {"refact", {.add_steps = single_digits}},
      {"granite", {.add_steps = single_digits}},
      {"codeshell", {.add_steps = single_digits}},
      {"command-r", {.add_steps = single_digits}},
      {"llama-bpe", {.whole_words = true, .add_begin = true, .add_steps = llama3}},
      {"llama3", {.whole_words = true, .add_begin = true, .add_steps = llama3}},
      {"llama-v3", {.whole_words = true, .add_begin = true, .add_steps = llama3}},
      {"dbrx", {.add_steps = llama3}},
      {"smaug-bpe", {.add_steps = llama3}},
      {"qwen2", {.add_steps = qwen2}},
      {"deepseek-r1-qwen", {.add_steps = qwen2}},
      {"falcon", {.add_steps = falcon}},
      {"deepseek-llm", {.add_begin = true, .add_steps = deepseek_llm}},
  };
  return table;
}

}  // namespace

const GgufSplit& find_gguf_split(const std::string& name) {
  const auto found = splits().find(name);
  if (found != splits().end()) return found->second;
  std::vector<std::string> names;
  std::string list;
  for (const auto& [known, entry] : splits()) {
    names.push_back(known);
    list += (list.empty() ? "" : ", ") + known;
  }
  throw Error(concat("the GGUF file splits words as '", name,
                     "' (tokenizer.ggml.pre), which is not known", did_you_mean(name, names),
                     "; known are ", list, "; a tokenizer.json of the model can be used instead"));
}

}  // namespace tempera::text
