#include "tempera/data/corpus.h"

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shards_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->path().extension() == kShardSuffix) found.push_back(at->path());
  TEMPERA_CHECK(!code, "cannot read the folder '", folder.string(), "': ", code.message());
  TEMPERA_CHECK(!found.empty(), "the folder '", folder.string(), "' has no token shards (*",
                kShardSuffix, "); make some with 'tempera data FILE --out ", folder.string(),
                "', or give a text file");
  std::sort(found.begin(), found.end());
  return found;
}

TokenShard tokenize_in_memory(const fs::path& path, const text::Tokenizer& tokenizer) {
  ShardBuilder builder(tokenizer.name(), tokenizer.vocabulary());
  tokenize_file(path, tokenizer, builder, [](const TextProgress&) {});
  return TokenShard::parse(builder.finish(), path.string());
}

// The index i with starts[i] <= at < starts[i + 1].
size_t interval_of(const std::vector<int64_t>& starts, int64_t at) {
  return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), at) - starts.begin()) -
         1;
}

}  // namespace

bool is_shards(const fs::path& path) {
  std::error_code missing;
  return path.extension() == kShardSuffix || fs::is_directory(path, missing);
}

Corpus Corpus::open(std::span<const fs::path> paths, const text::Tokenizer* tokenizer) {
  TEMPERA_CHECK(!paths.empty(), "no data given; give a text file, a jsonl file or token shards");
  std::vector<TokenShard> shards;
  for (const auto& path : paths) {
    std::error_code ignored;  // what cannot be looked at is reported when it is read
    if (fs::is_directory(path, ignored)) {
      for (const auto& shard : shards_in(path)) shards.push_back(TokenShard::open(shard));
      continue;
    }
    check_readable_file(path);
    if (path.extension() == kShardSuffix) {
      shards.push_back(TokenShard::open(path));
    } else {
      TEMPERA_CHECK(tokenizer != nullptr, "'", path.string(),
                    "' needs a tokenizer; without one, only token shards can be read");
      shards.push_back(tokenize_in_memory(path, *tokenizer));
    }
  }
  const std::string name = paths.front().string() + (paths.size() > 1 ? " ..." : "");
  TEMPERA_CHECK(tokenizer == nullptr || shards.front().tokenizer() == tokenizer->name(),
                "the token shards '", name, "' were made with the tokenizer '",
                shards.front().tokenizer(), "', the model uses '", tokenizer->name(),
                "'; make them again from the text with the model's tokenizer");
  return {std::move(shards), name};
}

Corpus::Corpus(std::vector<TokenShard> shards, std::string name)
    : name_(std::move(name)), shards_(std::move(shards)) {
  TEMPERA_CHECK(!shards_.empty(), "a corpus needs at least one shard");
  for (const auto& shard : shards_) {
    TEMPERA_CHECK(shard.tokenizer() == tokenizer() && shard.vocabulary() == vocabulary(),
                  "the token shards of '", name_, "' do not fit together: one has the tokenizer '",
                  tokenizer(), "' with ", vocabulary(), " ids, another '", shard.tokenizer(),
                  "' with ", shard.vocabulary(), "; make all with the same tokenizer");
    token_begin_.push_back(tokens() + shard.tokens());
    document_begin_.push_back(documents() + shard.documents());
  }
  TEMPERA_CHECK(tokens() > 0, "the data '", name_, "' has no text in it");
}

int64_t Corpus::document_begin(int64_t i) const {
  if (i == documents()) return tokens();
  const size_t shard = interval_of(document_begin_, i);
  return token_begin_[shard] + shards_[shard].document_begin(i - document_begin_[shard]);
}

int64_t Corpus::document_end(int64_t at) const {
  const size_t shard = interval_of(token_begin_, at);
  const TokenShard& held = shards_[shard];
  return token_begin_[shard] + held.document_begin(held.document_of(at - token_begin_[shard]) + 1);
}

void Corpus::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TEMPERA_CHECK(begin >= 0 && count <= tokens() && begin <= tokens() - count, "tokens ", begin,
                " to ", begin + count, " of a corpus of ", tokens());
  while (!out.empty()) {
    const size_t shard = interval_of(token_begin_, begin);
    const auto here = std::min(static_cast<int64_t>(out.size()), token_begin_[shard + 1] - begin);
    shards_[shard].read(begin - token_begin_[shard], out.first(static_cast<size_t>(here)));
    out = out.subspan(static_cast<size_t>(here));
    begin += here;
  }
}

}  // namespace tempera::data
