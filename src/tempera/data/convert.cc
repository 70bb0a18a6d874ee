#include "tempera/data/convert.h"

#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/output.h"
#include "tempera/data/shard.h"
#include "tempera/data/text.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

std::string shard_name(size_t index) {
  std::ostringstream name;
  name << "shard-" << std::setw(5) << std::setfill('0') << index << kShardSuffix;
  return std::move(name).str();
}

}  // namespace

ConvertSummary convert_to_shards(std::span<const fs::path> inputs, const text::Tokenizer& tokenizer,
                                 const fs::path& folder, const ConvertOptions& options,
                                 FunctionRef<void(int64_t)> report) {
  TEMPERA_CHECK(!inputs.empty(), "no input; give one or more text or jsonl files");
  TEMPERA_CHECK(options.shard_tokens >= 1, "shards of ", options.shard_tokens,
                " tokens; expected at least 1");
  for (const auto& input : inputs) check_readable_file(input);

  NewOutput out(folder, NewOutput::Kind::kFolder);
  ShardBuilder builder(tokenizer.name(), tokenizer.vocabulary());
  ConvertSummary summary;
  const auto write_shard = [&] {
    const std::vector<std::byte> bytes = builder.finish();
    const std::string name = shard_name(summary.shards.size());
    write_file(out.part() / name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    summary.shards.push_back(folder / name);
  };
  for (const auto& input : inputs) {
    const int64_t before = summary.text_bytes;
    tokenize_file(input, tokenizer, builder, [&](const TextProgress& progress) {
      summary.text_bytes = before + progress.bytes;
      summary.documents += progress.document_ended ? 1 : 0;
      summary.tokens += progress.tokens;
      if (builder.tokens() >= options.shard_tokens) write_shard();
      report(summary.text_bytes);
    });
  }
  TEMPERA_CHECK(summary.tokens > 0, "the input has no text in it: '", inputs.front().string(), "'",
                inputs.size() > 1 ? " and the others" : "");
  if (builder.tokens() > 0) write_shard();
  for (const auto& [name, bytes] : options.files) write_file(out.part() / name, bytes);
  out.finish();
  return summary;
}

}  // namespace tempera::data
