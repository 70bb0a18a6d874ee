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
#include "tempera/models/tokenizer.h"

namespace tempera::train {

// Which data: a built-in task, or files.
struct DataOptions {
  std::optional<std::string> task;
  data::GeneratorOptions task_options;
  std::vector<std::string> text;  // text and jsonl files, token shards, folders of shards
  double held_out = 0.05;

  void declare(config::Options& options);
  // The same without what concerns training alone; more_tasks: names beside the built-in tasks'.
  void declare_sources(config::Options& options, const std::vector<std::string>& more_tasks = {});
  // Throws UsageError unless exactly one kind of data is given.
  void validate() const;
  // Whether some of the text is not in token shards yet.
  bool has_plain_text() const;
};

// The data of a run, opened and checked.
class DataSource {
 public:
  // Text becomes token shards in `shards`, unless they are there from before: the run then has its
  // data with it. The tokenizer is `own`, that of a model which exists; else the one that lies
  // beside given shards, else that of bytes. report(bytes of text done) may throw.
  DataSource(const DataOptions& options, const std::filesystem::path& shards,
             const std::function<void(int64_t bytes)>& report,
             std::shared_ptr<const text::Tokenizer> own = nullptr);

  // Rows of `length` tokens, for tasks of their own length; in the order of this seed.
  std::shared_ptr<const data::Dataset> dataset(int64_t length, uint64_t seed) const;
  // Of text.
  bool is_text() const { return corpus_ != nullptr; }
  // For the checkpoints; without files where none lie beside the shards, without a name for tasks.
  const models::StoredTokenizer& tokenizer() const { return tokenizer_; }

 private:
  DataOptions options_;
  std::shared_ptr<const data::Corpus> corpus_;
  models::StoredTokenizer tokenizer_;
};

}  // namespace tempera::train
