#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

// How well a model predicts text, by how much of it the model has seen. For any model and
// tokenizer.
namespace tempera::eval {

// The predicted tokens that had from `first` to `last` tokens of context.
struct PositionBucket {
  int64_t first = 0, last = 0;
  int64_t tokens = 0;
  double loss = 0;  // mean
};

// Neighbouring predicted tokens of one row: what intervals draw again.
struct LossBlock {
  double loss = 0;  // summed
  int64_t tokens = 0;
};

struct TextScores {
  double loss = 0;  // mean over the predicted tokens, in nats
  double perplexity = 0;
  int64_t tokens = 0;  // predicted ones
  std::vector<PositionBucket> by_position;
  // Of 1,024 positions each, or a row's rest; the same ones for every model on the same text.
  std::vector<LossBlock> blocks = {};
};

// Sums losses by the number of tokens seen.
class LossByPosition {
 public:
  // Losses (B, T) of a batch; rows without a target are left out. A position counts from the begin
  // of its document.
  void add(const torch::Tensor& losses, const nn::Batch& batch);
  // Buckets that double: 1 to 15 tokens seen, 16 to 31, 32 to 63, ... The last ends with the most
  // that was seen; few tokens beyond a bound, as the last of a window of 64, go to the bucket
  // before it: by themselves their loss would be noise.
  TextScores scores() const;

 private:
  struct Sum {
    double loss = 0;
    int64_t tokens = 0;
  };
  std::map<int64_t, Sum> sums_;  // by the bucket's first position
  std::vector<LossBlock> blocks_;
  int64_t most_seen_ = 0;
};

using Document = std::vector<int32_t>;

// The documents of text and jsonl files as the tokenizer reads them, each with what it puts in
// front of a text; those of token shards as they are, less the end-of-text. max_tokens: of all
// together; 0: no bound.
std::vector<Document> read_documents(std::span<const std::filesystem::path> files,
                                     const text::Tokenizer& tokenizer, int64_t max_tokens = 0);

struct WindowOptions {
  int64_t window = 0;  // tokens that the model sees at once
  int64_t stride = 0;  // from one window to the next; tokens in two windows are scored in the first
};

// Every token but a document's first is predicted once, from the tokens before it in its window.
// report(tokens done) may throw.
TextScores score_documents(nn::Model& model, std::span<const Document> documents,
                           const WindowOptions& options,
                           const std::function<void(int64_t tokens)>& report = {});

// The same for rows of a held-out set of text (0: all).
TextScores score_held_out_text(nn::Model& model, const data::Dataset& dataset, int64_t rows = 0);

// Bytes of what score_documents predicts, for bits per byte.
int64_t predicted_bytes(std::span<const Document> documents, const text::Tokenizer& tokenizer);

}  // namespace tempera::eval
