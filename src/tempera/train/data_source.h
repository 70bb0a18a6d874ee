#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/data/corpus.h"
#include "tempera/data/generator.h"
#include "tempera/data/labelled_dataset.h"
#include "tempera/data/pair_dataset.h"
#include "tempera/data/text_dataset.h"
#include "tempera/models/tokenizer.h"
#include "tempera/nn/config.h"

namespace tempera::train {

// Which data: a built-in task, or files of one kind.
struct DataOptions {
  std::optional<std::string> task = {};
  data::GeneratorOptions task_options = {};
  std::vector<std::string> text = {};  // text and jsonl files, token shards, folders of shards
  std::vector<std::string> source = {}, target = {};  // line i of one belongs to that of the other
  std::vector<std::string> labelled = {};             // texts with classes
  std::optional<std::string> tokenizer = {};  // of files that are no shards; unset: that of bytes
  double held_out = 0.05;

  void declare(config::Options& options);
  // The same without what concerns training alone; more_tasks: names beside the built-in tasks'.
  void declare_sources(config::Options& options, const std::vector<std::string>& more_tasks = {});
  // Texts with answers, for encoders and encoder-decoders.
  void declare_examples(config::Options& options);
  bool has_files() const { return !(text.empty() && source.empty() && labelled.empty()); }
  // Throws UsageError unless exactly one kind of data is given.
  void validate() const;
  // Whether some of the text is not in token shards yet.
  bool has_plain_text() const;
};

// The data of a run, opened and checked.
class DataSource {
 public:
  // Text becomes token shards in `shards`, unless they are there from before: the run then has its
  // data with it. Pairs and labelled texts are read where they are. The tokenizer is `own`, that of
  // a model which exists; else the one given, or that which lies beside given shards, else that of
  // bytes. report(bytes of text done) may throw.
  DataSource(const DataOptions& options, const std::filesystem::path& shards,
             const std::function<void(int64_t bytes)>& report,
             std::shared_ptr<const text::Tokenizer> own = nullptr);

  // What a model of this kind learns: rows of `length` tokens, at most, but for tasks, which have
  // lengths of their own; in the order of this seed. Text is continued by decoders, encoders find
  // masked tokens of it, encoder-decoders spans that were taken out. Throws UsageError where data
  // and kind do not suit each other.
  std::shared_ptr<const data::Dataset> dataset(int64_t length, uint64_t seed,
                                               nn::ModelKind kind = nn::ModelKind::kDecoder) const;
  // Tokens of the text that no training sees, at any length of its rows; 0 for other data.
  int64_t held_out_tokens() const;
  // Tokens of the text, the held-out ones included; 0 for other data.
  int64_t text_tokens() const { return corpus_ ? corpus_->tokens() : 0; }
  int64_t vocabulary() const { return corpus_ ? corpus_->vocabulary() : 0; }
  // What the data says about a model whose fields do not say it.
  void complete(nn::ModelConfig& model, const data::Dataset& dataset) const;
  // Of files; none for tasks.
  const text::Tokenizer* text_tokenizer() const { return text_tokenizer_.get(); }
  // For the checkpoints; without files where none lie beside the shards, without a name for tasks.
  const models::StoredTokenizer& tokenizer() const { return tokenizer_; }

 private:
  void open_text(const std::filesystem::path& shards,
                 const std::function<void(int64_t bytes)>& report, const text::Tokenizer* own);
  std::shared_ptr<const data::Dataset> text_dataset(const data::TextOptions& options,
                                                    nn::ModelKind kind) const;

  DataOptions options_;
  std::shared_ptr<const text::Tokenizer> text_tokenizer_;
  std::shared_ptr<const data::Corpus> corpus_;
  std::vector<data::Pair> pairs_;
  std::vector<data::LabelledExample> labelled_;
  models::StoredTokenizer tokenizer_;
};

// The data that the first of several ranks has prepared in its folder.
DataSource read_first_data(const DataOptions& data, const std::filesystem::path& out,
                           const std::shared_ptr<const text::Tokenizer>& own = nullptr);

}  // namespace tempera::train
