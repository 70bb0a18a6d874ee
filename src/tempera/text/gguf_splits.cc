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
  // Letters with case, as its authors list them.
  split(parts,
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
        "]+");
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
