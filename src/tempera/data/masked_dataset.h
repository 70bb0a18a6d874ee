#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/data/random.h"
#include "tempera/text/sequence_tokens.h"

// What encoders and encoder-decoders learn from plain text. Both take the rows of another dataset
// of text and hide a part of each; what is hidden in a row depends on the seed, the step and the
// row alone, and in a held-out row on the row alone.
namespace tempera::data {

class HidingDataset : public Dataset {
 public:
  std::string name() const final { return text_->name(); }
  int64_t train_length() const final { return text_->train_length(); }
  Batch train(const BatchRequest& request) const final;
  const std::vector<HeldOutSet>& held_out_sets() const final { return text_->held_out_sets(); }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const final;

 protected:
  HidingDataset(std::shared_ptr<const Dataset> text, text::SequenceTokens ids, uint64_t seed);
  // The batch has tokens and documents; one stream a row.
  virtual Batch hide(Batch batch, std::vector<RandomStream> streams) const = 0;
  const text::SequenceTokens& ids() const { return ids_; }

 private:
  std::shared_ptr<const Dataset> text_;
  text::SequenceTokens ids_;
  uint64_t train_seed_, held_out_seed_;
};

// Masked language modelling (Devlin et al., 2019): 15 % of a row's tokens are predicted, of which
// 80 % are masked, 10 % are another token and 10 % stay. Special tokens are never predicted.
class MaskedDataset final : public HidingDataset {
 public:
  MaskedDataset(std::shared_ptr<const Dataset> text, text::SequenceTokens ids, uint64_t seed)
      : HidingDataset(std::move(text), std::move(ids), seed) {}

  int64_t vocabulary() const override { return ids().vocabulary; }
  int64_t classes() const override { return ids().vocabulary; }

 private:
  Batch hide(Batch batch, std::vector<RandomStream> streams) const override;
};

// Span corruption (Raffel et al., 2020): spans of 3 tokens on average, 15 % of the row, are taken
// out; the encoder reads a sentinel in the place of each, and the decoder writes each sentinel and
// the span behind it.
class SpanDataset final : public HidingDataset {
 public:
  SpanDataset(std::shared_ptr<const Dataset> text, text::SequenceTokens ids, uint64_t seed);

  int64_t vocabulary() const override { return ids().vocabulary_of_spans; }
  int64_t classes() const override { return ids().vocabulary_of_spans; }

 private:
  Batch hide(Batch batch, std::vector<RandomStream> streams) const override;
};

}  // namespace tempera::data
