#include "tempera/train/data_source.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/data/convert.h"
#include "tempera/data/masked_dataset.h"
#include "tempera/data/text.h"
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

std::vector<fs::path> paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

void require(nn::ModelKind given, nn::ModelKind wanted, const char* data, const char* kind) {
  if (given != wanted) throw UsageError(concat(data, " for a model of the kind ", kind));
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
  declare_sources(options);
  options.option("held-out", held_out, config::range(0, 0.9),
                 "share of the text held out for validation");
}

void DataOptions::declare_sources(config::Options& options,
                                  const std::vector<std::string>& more_tasks) {
  options.section(config::Section::kData);
  options.option("text", text, "text or jsonl files, token shards, or folders of shards");
  declare_examples(options);
  options.option("tokenizer", tokenizer,
                 "tokenizer file or folder for plain text; not given: bytes");
  TaskGroup group{*this, more_tasks};
  options.group("task", group);
  for (const auto& entry : data::generators())
    if (entry.name == task)
      options.declared("task", entry.options, task_options);
    else
      options.elsewhere("task", entry.options, "only with --task " + entry.name);
}

void DataOptions::declare_examples(config::Options& options) {
  options.option("source", source, "encoder-decoder: source files, one sentence per line");
  options.option("target", target, "encoder-decoder: target files, line by line");
  options.option(
      "labelled", labelled,
      "encoder: labelled texts, .tsv files with the columns text and label, or jsonl files "
      "with these keys");
}

void DataOptions::validate() const {
  if (source.size() != target.size())
    throw UsageError(concat("--source: ", source.size(), " files given, --target: ", target.size(),
                            "; each file of one needs its other"));
  std::vector<std::string> given;
  if (!text.empty()) given.push_back("--text");
  if (task) given.push_back("--task");
  if (!source.empty()) given.push_back("--source");
  if (!labelled.empty()) given.push_back("--labelled");
  if (given.empty())
    throw UsageError(
        "no data given; give files (--text FILE), or a built-in task (--task phonebook)");
  if (given.size() > 1)
    throw UsageError(concat("both ", given[0], " and ", given[1], " given; give one of them"));
}

bool DataOptions::has_plain_text() const {
  return !std::ranges::all_of(text, [](const auto& path) { return data::is_shards(path); });
}

DataSource::DataSource(const DataOptions& options, const fs::path& shards,
                       const std::function<void(int64_t)>& report,
                       std::shared_ptr<const text::Tokenizer> own)
    : options_(options), text_tokenizer_(own) {
  options.validate();
  if (options.task) return;
  if (!own && options.tokenizer) {
    const fs::path given = *options.tokenizer;
    text_tokenizer_ = text::load_tokenizer(given);
    tokenizer_ = models::stored_tokenizer(given, *text_tokenizer_);
  }
  if (!text_tokenizer_) text_tokenizer_ = std::make_shared<text::ByteTokenizer>();
  tokenizer_.name = text_tokenizer_->name();
  if (!options.text.empty())
    open_text(shards, report, own.get());
  else if (!options.source.empty())
    pairs_ = data::read_pairs(paths(options.source), paths(options.target), *text_tokenizer_);
  else
    labelled_ =
        data::encode_labelled(data::read_labelled(paths(options.labelled)), *text_tokenizer_);
}

void DataSource::open_text(const fs::path& shards, const std::function<void(int64_t)>& report,
                           const text::Tokenizer* own) {
  std::vector<fs::path> plain, ready;
  for (const auto& path : options_.text) (data::is_shards(path) ? ready : plain).emplace_back(path);
  const bool chosen = own || options_.tokenizer;
  const auto beside = chosen ? std::nullopt : folder_with_tokenizer(ready);
  if (beside) {
    text_tokenizer_ = text::load_tokenizer(text::tokenizer_file(*beside));
    tokenizer_.files = models::read_tokenizer_files(*beside);
  }
  if (!plain.empty()) {
    if (!fs::exists(shards)) data::convert_to_shards(plain, *text_tokenizer_, shards, {}, report);
    ready.insert(ready.begin(), shards);
  }
  for (const auto& path : ready)
    if (!fs::is_directory(path)) data::check_readable_file(path);
  corpus_ = std::make_shared<data::Corpus>(
      data::Corpus::open(ready, chosen ? text_tokenizer_.get() : nullptr));
  tokenizer_.name = corpus_->tokenizer();
  TEMPERA_CHECK(!beside || text_tokenizer_->name() == tokenizer_.name, "the tokenizer in '",
                beside->string(), "' is '", text_tokenizer_->name(),
                "', and the token shards were made with '", tokenizer_.name,
                "'; put the one that made them there, or make them again (tempera data)");
}

std::shared_ptr<const data::Dataset> DataSource::text_dataset(const data::TextOptions& options,
                                                              nn::ModelKind kind) const {
  auto text = std::make_shared<data::TextDataset>(corpus_, options);
  if (kind == nn::ModelKind::kDecoder) return text;
  TEMPERA_CHECK(text_tokenizer_->name() == corpus_->tokenizer(),
                "the token shards were made with '", corpus_->tokenizer(),
                "', and that tokenizer is not beside them: it has to say which tokens are special; "
                "give it with --tokenizer");
  const text::SequenceTokens ids(*text_tokenizer_);
  if (kind == nn::ModelKind::kEncoder)
    return std::make_shared<data::MaskedDataset>(text, ids, options.seed);
  return std::make_shared<data::SpanDataset>(text, ids, options.seed);
}

std::shared_ptr<const data::Dataset> DataSource::dataset(int64_t length, uint64_t seed,
                                                         nn::ModelKind kind) const {
  const data::TextOptions options{.length = length, .seed = seed, .held_out = options_.held_out};
  if (corpus_) return text_dataset(options, kind);
  if (options_.task) {
    require(kind, nn::ModelKind::kDecoder, "built-in tasks are", "decoder");
    return data::make_generator(*options_.task, options_.task_options, seed);
  }
  const text::SequenceTokens ids(*text_tokenizer_);
  if (!options_.source.empty()) {
    require(kind, nn::ModelKind::kEncoderDecoder, "--source and --target are", "encoder-decoder");
    return std::make_shared<data::PairDataset>(options_.source.front(), pairs_, ids, options);
  }
  require(kind, nn::ModelKind::kEncoder, "--labelled is", "encoder");
  return std::make_shared<data::LabelledDataset>(options_.labelled.front(), labelled_, ids,
                                                 options);
}

int64_t DataSource::held_out_tokens() const {
  return corpus_ ? data::split_text(*corpus_, options_.held_out).held_out.tokens() : 0;
}

void DataSource::complete(nn::ModelConfig& model, const data::Dataset& dataset) const {
  if (model.vocabulary == 0) model.vocabulary = dataset.vocabulary();
  if (model.outputs == 0 && dataset.classes() != dataset.vocabulary())
    model.outputs = dataset.classes();
  if (!options_.labelled.empty()) model.head = nn::HeadKind::kSequence;
}

DataSource read_first_data(const DataOptions& data, const std::filesystem::path& out,
                           const std::shared_ptr<const text::Tokenizer>& own) {
  const auto shards = out / "data";
  TEMPERA_CHECK(!data.has_plain_text() || std::filesystem::exists(shards), "there is no '",
                shards.string(),
                "', which the first rank has written: all ranks need one file system");
  return {data, shards, [](int64_t) {}, own};
}

}  // namespace tempera::train
