#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tempera/data/example_dataset.h"
#include "tempera/text/sequence_tokens.h"
#include "tempera/text/tokenizer.h"

namespace tempera::data {

// A sentence and its translation, each with the end behind.
struct Pair {
  std::vector<int64_t> source;
  std::vector<int64_t> target;
};

// Pairs of files in which line i of one belongs to line i of the other; pairs with an empty side
// are left out. Throws where the files do not belong together.
std::vector<Pair> read_pairs(std::span<const std::filesystem::path> sources,
                             std::span<const std::filesystem::path> targets,
                             const text::Tokenizer& tokenizer);

// A row is a target, read from the start token on; the encoder reads the source. Sides longer than
// a row are cut.
class PairDataset final : public ExampleDataset {
 public:
  PairDataset(std::string name, std::vector<Pair> pairs, const text::SequenceTokens& ids,
              const TextOptions& options);

  int64_t vocabulary() const override { return ids_.vocabulary; }
  int64_t classes() const override { return ids_.vocabulary; }

 private:
  Batch batch_of(std::span<const size_t> examples) const override;

  std::vector<Pair> pairs_;
  text::SequenceTokens ids_;
};

}  // namespace tempera::data
