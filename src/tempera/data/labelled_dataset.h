#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tempera/data/example_dataset.h"
#include "tempera/text/sequence_tokens.h"
#include "tempera/text/tokenizer.h"

namespace tempera::data {

struct LabelledText {
  std::string text;
  int64_t label = 0;
};

// A file whose name ends in .jsonl or .ndjson has an object with "text" (or "sentence") and "label"
// on each line; any other has columns of these names, separated by tabs, under a line with the
// names. Labels count from 0. Throws, with the number of the line, for what is something else.
std::vector<LabelledText> read_labelled(std::span<const std::filesystem::path> files);

struct LabelledExample {
  std::vector<int64_t> tokens;
  int64_t label = 0;
};
std::vector<LabelledExample> encode_labelled(const std::vector<LabelledText>& texts,
                                             const text::Tokenizer& tokenizer);

// A row is a text, cut to the length of a row; its answer is a class.
class LabelledDataset final : public ExampleDataset {
 public:
  LabelledDataset(std::string name, std::vector<LabelledExample> examples,
                  const text::SequenceTokens& ids, const TextOptions& options);

  int64_t vocabulary() const override { return ids_.vocabulary; }
  int64_t classes() const override { return classes_; }

 private:
  Batch batch_of(std::span<const size_t> examples) const override;

  std::vector<LabelledExample> examples_;
  text::SequenceTokens ids_;
  int64_t classes_ = 0;
};

}  // namespace tempera::data
