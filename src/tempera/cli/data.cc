#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "tempera/base/interrupt.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/convert.h"
#include "tempera/data/train_tokenizer.h"
#include "tempera/text/tokenizer_json.h"

namespace tempera::cli {
namespace {

struct DataSettings {
  std::vector<std::string> files;
  std::string out = "tokens";
  int64_t shard_tokens = data::ConvertOptions{}.shard_tokens;
  std::optional<int64_t> train_tokenizer;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("files", files, "text and jsonl files, in this order");
    config::out_option(options, out);
    options.section(config::Section::kData);
    options.option("shard-tokens", shard_tokens, config::range(1, 1LL << 40), "tokens per shard");
    options.option("train-tokenizer", train_tokenizer, config::range(258, 1LL << 22),
                   "train a byte-level BPE of this vocabulary size on the files, and tokenize them "
                   "with it; it is written as tokenizer.json beside the shards");
    config::json_option(options, json);
  }
};

constexpr const char* kInterrupted = "interrupted: nothing was written; run the same command again";

// The text of a tokenizer.json.
std::string learn(const std::vector<std::filesystem::path>& inputs, int64_t vocabulary,
                  int64_t total) {
  Progress progress("learn", total + vocabulary, "bytes and pieces");
  std::string learnt =
      data::train_tokenizer(inputs, vocabulary, [&](int64_t bytes, int64_t pieces) {
        progress.update(bytes + pieces);
        stop_if_interrupted(kInterrupted);
      });
  progress.update(total + vocabulary);
  progress.finish();
  return learnt;
}

void print(const data::ConvertSummary& summary, const text::Tokenizer& tokenizer,
           const DataSettings& settings) {
  if (!settings.json) {
    std::cout << summary.documents << " documents, " << summary.tokens << " tokens ("
              << tokenizer.name() << ") in " << summary.shards.size() << " shards: " << settings.out
              << "\n";
    return;
  }
  nlohmann::ordered_json result{{"out", settings.out},
                                {"tokenizer", tokenizer.name()},
                                {"vocabulary", tokenizer.vocabulary()},
                                {"text_bytes", summary.text_bytes},
                                {"documents", summary.documents},
                                {"tokens", summary.tokens},
                                {"shards", nlohmann::ordered_json::array()}};
  for (const auto& shard : summary.shards) result["shards"].push_back(shard.string());
  std::cout << result.dump(2) << "\n";
}

void run(const DataSettings& settings) {
  if (settings.files.empty())
    throw UsageError("no file given; give one or more text or jsonl files");
  const std::vector<std::filesystem::path> inputs(settings.files.begin(), settings.files.end());
  int64_t total = 0;
  for (const auto& input : inputs) {
    std::error_code missing;  // reported by the conversion, with advice
    const auto size = std::filesystem::file_size(input, missing);
    total += missing ? 0 : static_cast<int64_t>(size);
  }
  // Before a tokenizer is learned.
  const NewOutput place(settings.out, NewOutput::Kind::kFolder);
  const InterruptGuard guard;
  data::ConvertOptions options{.shard_tokens = settings.shard_tokens};
  std::unique_ptr<const text::Tokenizer> tokenizer = std::make_unique<text::ByteTokenizer>();
  if (settings.train_tokenizer) {
    options.files.emplace_back("tokenizer.json", learn(inputs, *settings.train_tokenizer, total));
    auto parts = text::parse_tokenizer_json(options.files.front().second, "tokenizer.json");
    parts.guess_special();
    tokenizer = text::make_tokenizer(std::move(parts));
  }
  Progress progress("tokenize", total, "bytes");
  const auto summary =
      data::convert_to_shards(inputs, *tokenizer, settings.out, options, [&](int64_t bytes) {
        progress.update(bytes);
        stop_if_interrupted(kInterrupted);
      });
  progress.update(total);
  progress.finish();
  print(summary, *tokenizer, settings);
}

}  // namespace

Verb data_verb() {
  return make_verb<DataSettings>("data", "tokenizes text and jsonl files into shards",
                                 {{"tempera data book.txt --out shards", "shards of bytes"},
                                  {"tempera data a.txt b.jsonl --train-tokenizer 8192 --out shards",
                                   "with a BPE tokenizer trained on the files"}},
                                 run);
}

}  // namespace tempera::cli
