#include "tempera/text/load.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/gguf.h"
#include "tempera/io/json.h"
#include "tempera/text/bpe.h"
#include "tempera/text/gguf_tokenizer.h"
#include "tempera/text/json_fields.h"
#include "tempera/text/pipeline.h"
#include "tempera/text/sentencepiece.h"
#include "tempera/text/tokenizer_json.h"
#include "tempera/text/wordpiece.h"

namespace tempera::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kLargestFile = uint64_t{256} << 20;

// tokenizer_config.json beside the tokenizer's own file: names of special tokens and a few
// settings, most of its fields are for other programs.
class Config {
 public:
  explicit Config(const fs::path& folder) {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      const fs::path path = folder / name;
      if (!fs::exists(path)) continue;
      documents_.push_back(io::parse_json(read_file(path, kLargestFile), path.string()));
      TEMPERA_CHECK(documents_.back().is_object(), path.string(), ": an object is expected");
    }
  }

  std::optional<bool> flag(const char* name) const {
    for (const auto& document : documents_)
      if (const auto found = document.find(name); found != document.end() && found->is_boolean())
        return found->get<bool>();
    return {};
  }
  // A token is a string, or an object with its content.
  std::optional<std::string> token(const char* name) const {
    for (const auto& document : documents_) {
      const auto found = document.find(name);
      if (found == document.end()) continue;
      if (found->is_string()) return found->get<std::string>();
      if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
        return (*found)["content"].get<std::string>();
    }
    return {};
  }
  void put_special(TokenizerParts& parts) const {
    const auto set = [&](std::optional<int32_t>& id, const char* name) {
      if (const auto content = token(name))
        if (const auto known = parts.vocabulary.find(*content)) id = known;
    };
    set(parts.special.begin_of_text, "bos_token");
    set(parts.special.end_of_text, "eos_token");
    set(parts.special.pad, "pad_token");
    set(parts.special.mask, "mask_token");
    set(parts.special.unknown, "unk_token");
    parts.guess_special();
  }

 private:
  std::vector<json> documents_;
};

void add_special_token(const std::string& content, TokenizerParts& parts) {
  const auto id = parts.vocabulary.find(content);
  if (!id) return;
  parts.add_token({.content = content, .id = *id, .special = true});
}

std::vector<std::string> lines_of(const fs::path& path) {
  const std::string text = read_file(path, kLargestFile);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

TokenizerParts load_wordpiece(const fs::path& path, const Config& config) {
  TokenizerParts parts;
  parts.kind = "wordpiece";
  bool capitals = false;
  for (std::string& line : lines_of(path)) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.pop_back();
    capitals |= !line.starts_with('[') &&
                std::any_of(line.begin(), line.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    parts.vocabulary.add(line, parts.vocabulary.size());
  }
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    add_special_token(name, parts);
  config.put_special(parts);
  parts.before = {parts.vocabulary.at("[CLS]", path.string())};
  parts.after = {parts.vocabulary.at("[SEP]", path.string())};
  const bool lower = config.flag("do_lower_case").value_or(!capitals);
  parts.normalizers.push_back(
      bert_normalizer({.clean_text = true,
                       .handle_chinese_chars = config.flag("tokenize_chinese_chars").value_or(true),
                       .strip_accents = config.flag("strip_accents").value_or(lower),
                       .lowercase = lower}));
  parts.pre_tokenizers.push_back(white_space_pre_tokenizer());
  parts.pre_tokenizers.push_back(punctuation_pre_tokenizer(SplitBehavior::kIsolated));
  parts.model = std::make_unique<WordPiece>(
      parts.vocabulary, WordPieceOptions{.unknown = parts.vocabulary.at("[UNK]", path.string())},
      parts.never());
  parts.decoders.push_back(wordpiece_decoder("##", true));
  return parts;
}

// GPT-2's own files: pieces with ids, and the merges in order.
TokenizerParts load_byte_level(const json& vocabulary, const fs::path& path, const fs::path& merges,
                               const Config& config) {
  TokenizerParts parts;
  parts.kind = "bpe";
  for (const auto& [piece, id] : vocabulary.items()) {
    TEMPERA_CHECK(id.is_number_unsigned() && id.get<uint64_t>() < uint64_t{1} << 32, path.string(),
                  ": '", piece, "' has the id ", id.dump(), "; an integer from 0 is expected");
    parts.vocabulary.add(piece, id.get<int64_t>());
  }
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token", "mask_token"})
    if (const auto content = config.token(name); content && parts.vocabulary.find(*content))
      add_special_token(*content, parts);
  for (const char* name : {"<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"})
    add_special_token(name, parts);
  std::vector<BpeMerge> pairs;
  for (const std::string& line : lines_of(merges)) {
    if (line.empty() || line.starts_with("#version")) continue;
    pairs.push_back(Bpe::parse_merge(parts.vocabulary, line, pairs.size(), {}));
  }
  parts.model = std::make_unique<Bpe>(parts.vocabulary, std::move(pairs), BpeOptions{.bytes = true},
                                      parts.never());
  parts.pre_tokenizers.push_back(byte_level_pre_tokenizer(
      {.add_prefix_space = config.flag("add_prefix_space").value_or(false), .map_bytes = false}));
  parts.decoders.push_back(byte_level_decoder());
  config.put_special(parts);
  return parts;
}

// "vocab.json" has "merges.txt" beside it, "gpt2-vocab.json" has "gpt2-merges.txt".
fs::path merges_beside(const fs::path& vocabulary) {
  std::string name = vocabulary.stem().string();
  if (const size_t at = name.rfind("vocab"); at != std::string::npos) name.replace(at, 5, "merges");
  const fs::path path = vocabulary.parent_path() / (name + ".txt");
  fs::path found = fs::exists(path) ? path : vocabulary.parent_path() / "merges.txt";
  TEMPERA_CHECK(fs::exists(found), "'", vocabulary.string(), "' needs its merges beside it: no '",
                found.string(), "'");
  return found;
}

// A vocab.json holds pieces and ids alone; the model of a tokenizer.json is an object.
bool is_vocabulary(const std::string& text, const fs::path& path) {
  return text.find("\"model\"") == std::string::npos || path.filename() == "vocab.json";
}

TokenizerParts load_json(const fs::path& path, const Config& config) {
  const std::string text = read_file(path, kLargestFile);
  if (is_vocabulary(text, path)) {
    const json document = io::parse_json(text, path.string());
    TEMPERA_CHECK(document.is_object(), path.string(), ": an object is expected");
    return load_byte_level(document, path, merges_beside(path), config);
  }
  TokenizerParts parts = parse_tokenizer_json(text, path.string());
  config.put_special(parts);
  return parts;
}

TokenizerParts load_sentencepiece(const fs::path& path, const Config& config) {
  SentencePieceModel model = parse_sentencepiece(read_file(path, kLargestFile), path.string());
  model.add_begin = config.flag("add_bos_token").value_or(model.add_begin);
  model.add_end = config.flag("add_eos_token").value_or(model.add_end);
  TokenizerParts parts = sentencepiece_parts(model);
  config.put_special(parts);
  return parts;
}

// A model of this program that was trained on bytes.
bool is_byte_model(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!fs::exists(path)) return false;
  const json document = io::parse_json(read_file(path, kLargestFile), path.string());
  if (!document.is_object() || !document.contains("tempera")) return false;
  const json& own = document["tempera"];
  return own.is_object() && own.contains("tokenizer") && own["tokenizer"] == "bytes";
}

}  // namespace

std::map<std::string, fs::path> tokenizer_sources(const fs::path& file) {
  const std::string ending = file.extension().string();
  if (ending == ".model") return {{"tokenizer.model", file}};
  if (ending == ".txt") return {{"vocab.txt", file}};
  if (is_vocabulary(read_file(file, kLargestFile), file))
    return {{"vocab.json", file}, {"merges.txt", merges_beside(file)}};
  return {{"tokenizer.json", file}};
}

fs::path tokenizer_file(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (fs::exists(folder / name)) return folder / name;
  throw Error(concat("no tokenizer in '", folder.string(),
                     "': no tokenizer.json, tokenizer.model, vocab.json or vocab.txt"));
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  TEMPERA_CHECK(fs::exists(path), "no file or folder '", path.string(), "'");
  if (fs::is_directory(path)) {
    if (is_byte_model(path)) return std::make_unique<ByteTokenizer>();
    return load_tokenizer(tokenizer_file(path));
  }
  const std::string ending = path.extension().string();
  if (ending == ".gguf") return make_tokenizer(read_gguf_tokenizer(io::Gguf(path).metadata()));
  const Config config(path.parent_path());
  if (ending == ".json") return make_tokenizer(load_json(path, config));
  if (ending == ".model") return make_tokenizer(load_sentencepiece(path, config));
  if (ending == ".txt") return make_tokenizer(load_wordpiece(path, config));
  throw Error(concat("'", path.string(),
                     "' is no tokenizer: a folder, a .gguf file, tokenizer.json,",
                     " tokenizer.model, vocab.json or vocab.txt is expected"));
}

}  // namespace tempera::text
