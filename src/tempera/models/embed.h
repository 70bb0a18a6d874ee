#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tempera/models/load.h"
#include "tempera/nn/pooling.h"
#include "tempera/text/tokenizer.h"

// Texts as vectors: the hidden states of an encoder, one row a token or one a text.
namespace tempera::models {

struct EmbedOptions {
  std::optional<nn::Pooling> pooling = nn::Pooling::kMean;  // none: a vector for every token
  bool normalise = true;                                    // vectors of length 1
  int64_t length = 0;  // tokens of a text, those around it included; more are cut off. 0: no bound
  int64_t batch = 32;  // texts of a pass
};

// What the files of sentence-transformers beside a model say; what they do not say is as above, and
// the length the model's own. Throws where they have a part that is not known here.
EmbedOptions embed_options_of(const LoadedModel& loaded);

// Of every text in turn.
struct Embeddings {
  std::vector<torch::Tensor> vectors;     // (width), or (tokens, width); float32, on the CPU
  std::vector<std::vector<int32_t>> ids;  // of its tokens
  int64_t cut = 0;                        // texts that were longer than the bound
};

// The vectors of texts whose ids are whole, each at least one; `pad` fills up the shorter ones of a
// pass.
std::vector<torch::Tensor> embed_ids(nn::Model& model, const std::vector<std::vector<int32_t>>& ids,
                                     int64_t pad, const EmbedOptions& options);

// Of an encoder-decoder, what its encoder makes of the texts.
Embeddings embed(nn::Model& model, const text::Tokenizer& tokenizer,
                 const std::vector<std::string>& texts, const EmbedOptions& options);

}  // namespace tempera::models
