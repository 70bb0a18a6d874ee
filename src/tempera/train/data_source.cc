#include "tempera/train/data_source.h"

#include "tempera/base/error.h"
#include "tempera/data/convert.h"
#include "tempera/data/text.h"
#include "tempera/data/text_dataset.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

bool is_shards(const fs::path& path) {
  std::error_code missing;
  return path.extension() == data::kShardSuffix || fs::is_directory(path, missing);
}

struct TaskGroup {
  DataOptions& data;
  void declare(config::Options& options) {
    std::vector<std::string> names;
    for (const auto& entry : data::generators()) names.push_back(entry.name);
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

void DataOptions::declare_sources(config::Options& options) {
  options.option("text", text, "text and jsonl files, token shards, or folders of shards");
  TaskGroup group{*this};
  options.group("task", group);
  if (task) options.declared("task", data::find_generator(*task).options, task_options);
  for (const auto& entry : data::generators())
    if (entry.name != task)
      options.elsewhere("task", entry.options, "only with --task " + entry.name);
}

void DataOptions::validate() const {
  if (task.has_value() != text.empty())
    throw UsageError(text.empty() ? "no data given; give files with --text, or a built-in task "
                                    "such as --task phonebook"
                                  : "both --text and --task given; give one of them");
}

DataSource::DataSource(const DataOptions& options, const fs::path& shards,
                       const std::function<void(int64_t)>& report)
    : options_(options) {
  options.validate();
  if (options.task) return;
  std::vector<fs::path> plain, ready;
  for (const auto& path : options.text) (is_shards(path) ? ready : plain).emplace_back(path);
  const text::ByteTokenizer bytes;
  if (!plain.empty()) {
    if (!fs::exists(shards)) data::convert_to_shards(plain, bytes, shards, {}, report);
    ready.insert(ready.begin(), shards);
  }
  for (const auto& path : ready)
    if (!fs::is_directory(path)) data::check_readable_file(path);
  corpus_ =
      std::make_shared<data::Corpus>(data::Corpus::open(ready, plain.empty() ? nullptr : &bytes));
}

std::shared_ptr<const data::Dataset> DataSource::dataset(int64_t length, uint64_t seed) const {
  if (!corpus_) return data::make_generator(*options_.task, options_.task_options, seed);
  return std::make_shared<data::TextDataset>(
      corpus_, data::TextOptions{.length = length, .seed = seed, .held_out = options_.held_out});
}

}  // namespace tempera::train
