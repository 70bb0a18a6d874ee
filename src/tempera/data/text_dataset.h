#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tempera/data/corpus.h"
#include "tempera/data/dataset.h"

namespace tempera::data {

// A part of a corpus: runs of tokens, one after the other.
class TextPart {
 public:
  void add(int64_t begin, int64_t end);
  int64_t tokens() const { return starts_.back(); }
  struct Place {
    int64_t token;  // in the corpus
    int64_t end;    // of the run, in the corpus
  };
  Place place(int64_t at) const;

 private:
  std::vector<int64_t> begins_;     // of each run, in the corpus
  std::vector<int64_t> starts_{0};  // of each run, in the part; and the end
};

// What is trained on, and what never is. The split depends on the text and the share alone, not on
// the length of a row or on a seed: whatever trains on a text or measures on it, the held-out part
// is the same.
struct TextSplit {
  TextPart train, held_out;
};
TextSplit split_text(const Corpus& corpus, double held_out);

struct TextOptions {
  int64_t length = 0;      // tokens of a row
  uint64_t seed = 0;       // of the order of training
  double held_out = 0.05;  // share of the tokens that training never sees; 0: none
};

// Packs a corpus into rows: the documents one behind the other, cut every `length` tokens. A
// position predicts the next token of its document; the last position of a document predicts
// nothing, and the packed documents of a row are told apart by their lengths. Row `sample` of
// training is known from the seed and `sample` alone: sample = step * batch_rows + row, epoch =
// sample / rows of the corpus, and each epoch has its own permutation.
class TextDataset final : public Dataset {
 public:
  TextDataset(std::shared_ptr<const Corpus> corpus, const TextOptions& options);

  std::string name() const override { return corpus_->name(); }
  int64_t vocabulary() const override { return corpus_->vocabulary(); }
  int64_t classes() const override { return corpus_->vocabulary(); }
  int64_t train_length() const override { return length_; }
  Batch train(const BatchRequest& request) const override;
  // One set (none where nothing is held out): the rows in the order of the text. A held-out part
  // that is shorter than a row is one row, as long as there is text.
  const std::vector<HeldOutSet>& held_out_sets() const override { return held_out_sets_; }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const override;

  // Rows of one epoch of training.
  int64_t train_rows() const { return split_.train.tokens() / length_; }
  int64_t train_tokens() const { return split_.train.tokens(); }
  int64_t held_out_tokens() const { return split_.held_out.tokens(); }

 private:
  Batch pack(const TextPart& part, int64_t length, std::span<const int64_t> windows) const;
  // Row `window` of the part, tokens.size() long.
  void pack_row(const TextPart& part, int64_t window, std::span<int64_t> tokens, int64_t* targets,
                std::vector<int64_t>& lengths) const;

  std::shared_ptr<const Corpus> corpus_;
  int64_t length_;
  uint64_t order_seed_;
  TextSplit split_;
  std::vector<HeldOutSet> held_out_sets_;
};

}  // namespace tempera::data
