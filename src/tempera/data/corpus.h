#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tempera/data/shard.h"
#include "tempera/text/tokenizer.h"

namespace tempera::data {

// Whether a path names token shards, or a folder of them, and no text.
bool is_shards(const std::filesystem::path& path);

// Token shards one behind the other, addressed as one run of tokens. Text and jsonl files become
// shards in memory.
class Corpus {
 public:
  // Paths of shards, of folders with shards, of text and jsonl files, in this order. Shards of
  // another tokenizer are refused; without a tokenizer, shards alone can be read and must agree
  // with each other.
  static Corpus open(std::span<const std::filesystem::path> paths,
                     const text::Tokenizer* tokenizer);
  // At least one shard, all of the same tokenizer and vocabulary. name is for messages.
  Corpus(std::vector<TokenShard> shards, std::string name);

  const std::string& name() const { return name_; }
  const std::string& tokenizer() const { return shards_.front().tokenizer(); }
  int64_t vocabulary() const { return shards_.front().vocabulary(); }
  int64_t tokens() const { return token_begin_.back(); }
  int64_t documents() const { return document_begin_.back(); }

  // The token at which document i begins; i = documents() gives tokens().
  int64_t document_begin(int64_t i) const;
  // Where the document that holds token `at` ends.
  int64_t document_end(int64_t at) const;
  // Copies tokens [begin, begin + out.size()).
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
  std::string name_;
  std::vector<TokenShard> shards_;
  std::vector<int64_t> token_begin_{0};     // of each shard, and the end
  std::vector<int64_t> document_begin_{0};  // the same, counted in documents
};

}  // namespace tempera::data
