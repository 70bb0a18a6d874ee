#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tempera/base/files.h"

// A file of token ids with document boundaries (docs/reference/data.md has the layout). A shard is
// believed only after every count was checked against the file's size, both checksums match and
// every id is below the vocabulary; after that, reading needs no more checks.
namespace tempera::data {

inline constexpr std::string_view kShardSuffix = ".tokens";

class TokenShard {
 public:
  static TokenShard open(const std::filesystem::path& path);
  // origin names the bytes in messages.
  static TokenShard parse(std::vector<std::byte> bytes, const std::string& origin);

  const std::string& tokenizer() const { return tokenizer_; }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  // Where document i begins; i = documents() gives tokens().
  int64_t document_begin(int64_t i) const;
  // The document that holds token `at`.
  int64_t document_of(int64_t at) const;
  // Copies tokens [begin, begin + out.size()).
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
  using Storage = std::variant<std::vector<std::byte>, MappedFile>;
  TokenShard(Storage storage, const std::string& origin);

  Storage storage_;
  std::string tokenizer_;
  int64_t vocabulary_ = 0;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  int width_ = 0;                       // bytes of an id: 2 or 4
  const std::byte* offsets_ = nullptr;  // inside storage_
  const std::byte* ids_ = nullptr;
};

// Collects documents and gives the bytes of a shard.
class ShardBuilder {
 public:
  ShardBuilder(std::string tokenizer, int64_t vocabulary);
  // Adds to the document that is open; the first ids open one.
  void append(std::span<const int32_t> ids);
  // A document without ids is none.
  void end_document();
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()) / width_; }
  int64_t documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  // The shard so far, an open document ended; the builder is empty after it.
  std::vector<std::byte> finish();

 private:
  std::string tokenizer_;
  int64_t vocabulary_;
  int width_;
  std::vector<uint64_t> offsets_{0};
  std::vector<std::byte> ids_;
};

}  // namespace tempera::data
