#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tempera/data/corpus.h"
#include "tempera/data/dataset.h"

namespace tempera::data {

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
  // One set (none where nothing is held out): the rows in the order of the text.
  const std::vector<HeldOutSet>& held_out_sets() const override { return held_out_sets_; }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const override;

  // Rows of one epoch of training.
  int64_t train_rows() const { return train_.tokens() / length_; }
  int64_t train_tokens() const { return train_.tokens(); }
  int64_t held_out_tokens() const { return held_out_.tokens(); }

 private:
  // A part of the corpus: runs of tokens, one behind the other.
  class Part {
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

  bool split_by_documents(int64_t wanted);
  void split_tail(int64_t wanted);
  Batch pack(const Part& part, std::span<const int64_t> windows) const;
  void pack_row(const Part& part, int64_t window, int64_t* tokens, int64_t* targets,
                std::vector<int64_t>& lengths) const;

  std::shared_ptr<const Corpus> corpus_;
  int64_t length_;
  uint64_t order_seed_;
  Part train_;
  Part held_out_;
  std::vector<HeldOutSet> held_out_sets_;
};

}  // namespace tempera::data
