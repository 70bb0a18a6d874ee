#include "tempera/data/pair_dataset.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

namespace tempera::data {
namespace {

// Of the pairs, which are cut to the length of a row.
std::vector<int64_t> cut_sizes(std::vector<Pair>& pairs, int64_t length) {
  std::vector<int64_t> sizes;
  sizes.reserve(pairs.size());
  for (auto& [source, target] : pairs) {
    text::cut_sequence(source, length);
    text::cut_sequence(target, length);
    sizes.push_back(static_cast<int64_t>(std::max(source.size(), target.size())));
  }
  return sizes;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t") == std::string::npos;
}

}  // namespace

std::vector<Pair> read_pairs(std::span<const std::filesystem::path> sources,
                             std::span<const std::filesystem::path> targets,
                             const text::Tokenizer& tokenizer) {
  TEMPERA_CHECK(sources.size() == targets.size() && !sources.empty(), sources.size(),
                " files of sources and ", targets.size(),
                " of targets given; as many of both expected, at least one");
  const text::SequenceTokens ids(tokenizer);
  std::vector<Pair> pairs;
  for (size_t file = 0; file < sources.size(); ++file) {
    const auto from = read_lines(sources[file]), to = read_lines(targets[file]);
    TEMPERA_CHECK(from.size() == to.size(), "'", sources[file].string(), "' has ", from.size(),
                  " lines and '", targets[file].string(), "' has ", to.size(),
                  "; a line of one has to belong to the same line of the other");
    for (size_t line = 0; line < from.size(); ++line)
      if (!is_blank(from[line]) && !is_blank(to[line]))
        pairs.push_back({text::encode_sequence(tokenizer, ids, from[line]),
                         text::encode_sequence(tokenizer, ids, to[line])});
  }
  TEMPERA_CHECK(!pairs.empty(), "'", sources[0].string(), "' and '", targets[0].string(),
                "' have no line with words in both");
  return pairs;
}

PairDataset::PairDataset(std::string name, std::vector<Pair> pairs, const text::SequenceTokens& ids,
                         const TextOptions& options)
    : ExampleDataset(std::move(name), cut_sizes(pairs, options.length), options),
      pairs_(std::move(pairs)),
      ids_(ids) {}

Batch PairDataset::batch_of(std::span<const size_t> examples) const {
  std::vector<std::span<const int64_t>> sources, targets;
  for (const size_t example : examples) {
    sources.emplace_back(pairs_[example].source);
    targets.emplace_back(pairs_[example].target);
  }
  PaddedRows source = pad_rows(sources, ids_.pad);
  PaddedRows target = pad_rows(targets, kIgnored);
  Batch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  batch.length = target.length;
  batch.tokens.assign(target.tokens.size(), ids_.pad);
  const auto length = static_cast<size_t>(target.length);
  for (size_t row = 0; row < examples.size(); ++row) {
    // What a position reads is what the one before it had to say.
    int64_t* tokens = batch.tokens.data() + row * length;
    tokens[0] = ids_.start;
    std::copy_n(targets[row].begin(), targets[row].size() - 1, tokens + 1);
  }
  batch.targets = std::move(target.tokens);
  batch.lengths = std::move(target.lengths);
  batch.source_length = source.length;
  batch.source = std::move(source.tokens);
  batch.source_lengths = std::move(source.lengths);
  return batch;
}

}  // namespace tempera::data
