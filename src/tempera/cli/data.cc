#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/convert.h"

namespace tempera::cli {
namespace {

struct Settings {
  std::vector<std::string> files;
  std::string out = "tokens";
  int64_t shard_tokens = data::ConvertOptions{}.shard_tokens;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("files", files, "text and jsonl files, in this order");
    config::out_option(options, out);
    options.option("shard-tokens", shard_tokens, config::range(1, 1LL << 40),
                   "a shard is closed as soon as it has as many tokens");
    config::json_option(options, json);
  }
};

void print(const data::ConvertSummary& summary, const text::Tokenizer& tokenizer,
           const Settings& settings) {
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

void run(const Settings& settings) {
  if (settings.files.empty())
    throw UsageError("no file given; give one or more text or jsonl files");
  const std::vector<std::filesystem::path> inputs(settings.files.begin(), settings.files.end());
  int64_t total = 0;
  for (const auto& input : inputs) {
    std::error_code missing;  // reported by the conversion, with advice
    const auto size = std::filesystem::file_size(input, missing);
    total += missing ? 0 : static_cast<int64_t>(size);
  }
  const text::ByteTokenizer tokenizer;
  const InterruptGuard guard;
  Progress progress("tokenize", total, "bytes");
  const auto summary = data::convert_to_shards(
      inputs, tokenizer, settings.out, {.shard_tokens = settings.shard_tokens}, [&](int64_t bytes) {
        progress.update(bytes);
        if (const int signal = InterruptGuard::signal())
          throw Interrupted(signal, "interrupted: nothing was written; run the same command again");
      });
  progress.update(total);
  progress.finish();
  print(summary, tokenizer, settings);
}

}  // namespace

Verb data_verb() {
  return make_verb<Settings>("data", "turns text and jsonl files into token shards", run);
}

}  // namespace tempera::cli
