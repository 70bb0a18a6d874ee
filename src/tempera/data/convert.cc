#include "tempera/data/convert.h"

#include <iomanip>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/data/shard.h"
#include "tempera/data/text.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

// A folder under another name until keep() renames it into place; removed otherwise.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& path)
      // Absolute and normal, so that 'out/' and '.' have a parent and a name.
      : path_(fs::absolute(path).lexically_normal()) {
    if (!path_.has_filename()) path_ = path_.parent_path();
    std::error_code code;
    TEMPERA_CHECK(!fs::exists(path_, code) || (fs::is_directory(path_) && fs::is_empty(path_)), "'",
                  path.string(), "' is there already; give another folder, or remove it first");
    const fs::path parent = path_.parent_path();
    fs::create_directories(parent, code);
    TEMPERA_CHECK(!code, "cannot make the folder '", parent.string(), "': ", code.message());
    std::random_device random;
    partial_ = parent / concat(".", path_.filename().string(), ".", random(), random(), ".part");
    fs::create_directory(partial_, code);
    TEMPERA_CHECK(!code, "cannot make a folder in '", parent.string(), "': ", code.message(),
                  "; give a folder that can be written with --out");
  }
  ~PartialFolder() {
    std::error_code ignored;
    if (!partial_.empty()) fs::remove_all(partial_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return partial_; }

  void keep() {
    sync_folder(partial_);
    std::error_code code;
    fs::rename(partial_, path_, code);
    TEMPERA_CHECK(!code, "cannot rename '", partial_.string(), "' to '", path_.string(),
                  "': ", code.message());
    partial_.clear();
    sync_folder(path_.parent_path());
  }

 private:
  fs::path path_;
  fs::path partial_;
};

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

  PartialFolder partial(folder);
  ShardBuilder builder(tokenizer.name(), tokenizer.vocabulary());
  ConvertSummary summary;
  const auto write_shard = [&] {
    const std::vector<std::byte> bytes = builder.finish();
    const std::string name = shard_name(summary.shards.size());
    write_file(partial.path() / name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
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
  for (const auto& [name, bytes] : options.files) write_file(partial.path() / name, bytes);
  partial.keep();
  return summary;
}

}  // namespace tempera::data
