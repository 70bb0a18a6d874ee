#include "tempera/models/tokenizer.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/gguf.h"
#include "tempera/io/json.h"
#include "tempera/text/gguf_to_files.h"
#include "tempera/text/gguf_tokenizer.h"
#include "tempera/text/load.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;

// As much as a checkpoint takes of a small file.
constexpr uint64_t kLargestTokenizerFile = 64U << 20;

// Of kTokenizerFiles, those that are a tokenizer by themselves.
constexpr const char* kVocabularies[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                         "merges.txt", "vocab.txt"};

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf"; }

std::map<std::string, std::string> gguf_files(const io::GgufMetadata& metadata, int64_t context) {
  auto files = text::tokenizer_files(text::read_gguf_tokenizer(metadata));
  if (context > 0) files.config["model_max_length"] = context;
  if (metadata.find("tokenizer.chat_template") != nullptr)
    files.config["chat_template"] = metadata.get<std::string>("tokenizer.chat_template");
  return {{"tokenizer.json", files.tokenizer_json},
          {"tokenizer_config.json",
           files.config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"}};
}

}  // namespace

bool has_tokenizer_files(const fs::path& folder) {
  constexpr const char* kFiles[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"};
  return std::ranges::any_of(kFiles, [&](const char* name) { return fs::exists(folder / name); });
}

std::map<std::string, std::string> read_tokenizer_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : kTokenizerFiles)
    if (fs::exists(folder / name)) files[name] = read_file(folder / name, kLargestTokenizerFile);
  return files;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const LoadedModel& loaded) {
  if (is_gguf(loaded.path)) {
    const io::Gguf file(loaded.path);
    if (!file.metadata().find("tokenizer.ggml.model")) return nullptr;
    return text::make_tokenizer(text::read_gguf_tokenizer(file.metadata()));
  }
  if (loaded.tokenizer == text::ByteTokenizer().name())
    return std::make_shared<text::ByteTokenizer>();
  if (has_tokenizer_files(loaded.path)) {
    auto tokenizer = text::load_tokenizer(loaded.path);
    TEMPERA_CHECK(loaded.tokenizer.empty() || tokenizer->name() == loaded.tokenizer,
                  loaded.path.string(), ": the model reads the tokens of '", loaded.tokenizer,
                  "', and the tokenizer in the folder is '", tokenizer->name(),
                  "'; put the files of the right one there");
    return tokenizer;
  }
  TEMPERA_CHECK(loaded.tokenizer.empty(), loaded.path.string(), ": the model reads the tokens of '",
                loaded.tokenizer, "', and the folder has no tokenizer; copy its files there");
  return nullptr;
}

StoredTokenizer stored_tokenizer(const fs::path& given, const text::Tokenizer& tokenizer) {
  StoredTokenizer stored{.name = tokenizer.name()};
  if (is_gguf(given)) {
    stored.files = gguf_files(io::Gguf(given).metadata(), 0);
  } else if (fs::is_directory(given)) {
    stored.files = read_tokenizer_files(given);
  } else {
    // What lies beside the file says more about it, but is no other tokenizer.
    stored.files = read_tokenizer_files(given.parent_path());
    for (const char* name : kVocabularies) stored.files.erase(name);
    for (const auto& [name, path] : text::tokenizer_sources(given))
      stored.files[name] = read_file(path, kLargestTokenizerFile);
  }
  return stored;
}

StoredTokenizer stored_tokenizer(const LoadedModel& loaded) {
  StoredTokenizer stored;
  if (const auto tokenizer = tokenizer_of(loaded)) stored.name = tokenizer->name();
  constexpr const char* kGeneration = "generation_config.json";
  if (!is_gguf(loaded.path)) {
    stored.files = read_tokenizer_files(loaded.path);
  } else {
    const io::Gguf original(loaded.path);
    if (original.metadata().find("tokenizer.ggml.model") == nullptr) return stored;
    stored.files = gguf_files(original.metadata(), loaded.model->config().context);
  }
  const auto ends = end_tokens_of(loaded);
  if (!ends.empty() && !stored.files.contains(kGeneration))
    stored.files[kGeneration] = nlohmann::json{{"eos_token_id", ends}}.dump(2) + "\n";
  return stored;
}

std::vector<int64_t> end_tokens_of(const LoadedModel& loaded) {
  std::vector<int64_t> ends;
  if (is_gguf(loaded.path)) {
    const io::Gguf file(loaded.path);
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
      if (file.metadata().find(key)) ends.push_back(file.metadata().get<int64_t>(key));
    return ends;
  }
  const auto add = [&](const nlohmann::json& json) {
    if (!json.is_object() || !json.contains("eos_token_id")) return;
    const auto& given = json["eos_token_id"];
    for (const auto& id : given.is_array() ? given : nlohmann::json::array({given}))
      if (id.is_number_integer()) ends.push_back(id.get<int64_t>());
  };
  add(loaded.config);
  const fs::path file = loaded.path / "generation_config.json";
  if (fs::exists(file)) add(io::parse_json(read_file(file, kMostConfig), file.string()));
  return ends;
}

std::optional<text::ChatTemplate> chat_template_of(const LoadedModel& loaded) {
  if (!is_gguf(loaded.path)) return text::ChatTemplate::find(loaded.path);
  const io::Gguf file(loaded.path);
  if (!file.metadata().find("tokenizer.chat_template")) return std::nullopt;
  text::SpecialTexts special;
  const auto& tokens = file.metadata().get<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto add = [&](const char* key, const char* name) {
    if (!file.metadata().find(key)) return;
    const auto id = file.metadata().get<int64_t>(key);
    if (id >= 0 && id < static_cast<int64_t>(tokens.size()))
      special.emplace_back(name, tokens[static_cast<size_t>(id)]);
  };
  add("tokenizer.ggml.bos_token_id", "bos_token");
  add("tokenizer.ggml.eos_token_id", "eos_token");
  add("tokenizer.ggml.unknown_token_id", "unk_token");
  add("tokenizer.ggml.padding_token_id", "pad_token");
  return text::ChatTemplate(file.metadata().get<std::string>("tokenizer.chat_template"),
                            loaded.path.string(), special);
}

}  // namespace tempera::models
