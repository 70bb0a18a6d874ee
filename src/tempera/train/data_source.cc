#include "tempera/train/data_source.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/data/convert.h"
#include "tempera/data/text.h"
#include "tempera/data/text_dataset.h"
#include "tempera/text/load.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

// The folder of the first shards that have their tokenizer with them.
std::optional<fs::path> folder_with_tokenizer(const std::vector<fs::path>& shards) {
  for (const auto& path : shards) {
    const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    if (models::has_tokenizer_files(folder)) return folder;
  }
  return std::nullopt;
}

struct TaskGroup {
  DataOptions& data;
  const std::vector<std::string>& more;
  void declare(config::Options& options) {
    std::vector<std::string> names;
    for (const auto& entry : data::generators()) names.push_back(entry.name);
    for (const auto& name : more)
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    options.option("name", data.task, config::choices(names), "a built-in task instead of files",
                   {.alias = "task"});
  }
};

}  // namespace

void DataOptions::declare(config::Options& options) {
  options.option("held-out", held_out, config::range(0, 0.9),
                 "share of the text that is kept from training, for validation");
  declare_sources(options);
}

void DataOptions::declare_sources(config::Options& options,
                                  const std::vector<std::string>& more_tasks) {
  options.option("text", text, "text and jsonl files, token shards, or folders of shards");
  TaskGroup group{*this, more_tasks};
  options.group("task", group);
  for (const auto& entry : data::generators())
    if (entry.name == task)
      options.declared("task", entry.options, task_options);
    else
      options.elsewhere("task", entry.options, "only with --task " + entry.name);
}

void DataOptions::validate() const {
  if (task.has_value() != text.empty())
    throw UsageError(text.empty() ? "no data given; give files with --text, or a built-in task "
                                    "such as --task phonebook"
                                  : "both --text and --task given; give one of them");
}

bool DataOptions::has_plain_text() const {
  return !std::ranges::all_of(text, [](const auto& path) { return data::is_shards(path); });
}

DataSource::DataSource(const DataOptions& options, const fs::path& shards,
                       const std::function<void(int64_t)>& report,
                       std::shared_ptr<const text::Tokenizer> own)
    : options_(options) {
  options.validate();
  if (options.task) return;
  std::vector<fs::path> plain, ready;
  for (const auto& path : options.text) (data::is_shards(path) ? ready : plain).emplace_back(path);
  std::shared_ptr<const text::Tokenizer> tokenizer = own;
  if (!own) tokenizer = std::make_shared<text::ByteTokenizer>();
  const auto beside = own ? std::nullopt : folder_with_tokenizer(ready);
  if (beside) {
    tokenizer = text::load_tokenizer(text::tokenizer_file(*beside));
    tokenizer_.files = models::read_tokenizer_files(*beside);
  }
  if (!plain.empty()) {
    if (!fs::exists(shards)) data::convert_to_shards(plain, *tokenizer, shards, {}, report);
    ready.insert(ready.begin(), shards);
  }
  for (const auto& path : ready)
    if (!fs::is_directory(path)) data::check_readable_file(path);
  corpus_ = std::make_shared<data::Corpus>(data::Corpus::open(ready, own.get()));
  tokenizer_.name = corpus_->tokenizer();
  TEMPERA_CHECK(!beside || tokenizer->name() == tokenizer_.name, "the tokenizer in '",
                beside->string(), "' is '", tokenizer->name(),
                "', and the token shards were made with '", tokenizer_.name,
                "'; put the one that made them there, or make them again (tempera data)");
}

std::shared_ptr<const data::Dataset> DataSource::dataset(int64_t length, uint64_t seed) const {
  if (!corpus_) return data::make_generator(*options_.task, options_.task_options, seed);
  return std::make_shared<data::TextDataset>(
      corpus_, data::TextOptions{.length = length, .seed = seed, .held_out = options_.held_out});
}

}  // namespace tempera::train
