#pragma once

#include "tempera/base/error.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/text/tokenizer.h"

namespace tempera::eval {

// A model of bytes that knows one trick: where the last bytes stood before, not more than `reach`
// bytes ago, it is sure of the byte that followed them there.
class CopyingModel : public nn::Model {
 public:
  explicit CopyingModel(int64_t reach) : Model(config_of_bytes()), reach_(reach) {
    weight_ = torch::eye(text::ByteTokenizer::kVocabulary);
  }

  torch::Tensor hidden(const nn::Batch& batch, const nn::LayerObserver& /*observer*/) override {
    const auto rows = batch.tokens.accessor<int64_t, 2>();
    auto out = torch::zeros({rows.size(0), rows.size(1), config_.vocabulary});
    for (int64_t b = 0; b < rows.size(0); ++b)
      for (int64_t t = kContext; t < rows.size(1); ++t)
        for (int64_t s = t - 1; s >= std::max(kContext, t - reach_); --s)
          if (alike(rows[b], s, t)) {
            out[b][t][rows[b][s + 1]] = 30;
            break;
          }
    return out;
  }
  const torch::Tensor& output_weight() const override { return weight_; }
  std::vector<nn::LayerInspection> inspect(const nn::Batch& /*batch*/,
                                           const torch::Tensor& /*rows*/,
                                           const torch::Tensor& /*keys*/) override {
    throw Error("nothing to inspect");
  }
  nn::ModelCache make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start) override {
    return {{}, torch::zeros({batch, capacity}, torch::kInt64), start};
  }
  torch::Tensor extend(const torch::Tensor& tokens, nn::ModelCache& cache) override {
    const int64_t before = cache.length();
    cache.append_tokens(tokens);
    nn::Batch batch;
    batch.tokens = cache.tokens().contiguous();
    return hidden(batch, {}).slice(1, before);
  }
  std::vector<Method*> methods() override { return {}; }

 private:
  static constexpr int64_t kContext = 12;

  static nn::ModelConfig config_of_bytes() {
    nn::ModelConfig config;
    config.vocabulary = text::ByteTokenizer::kVocabulary;
    return config;
  }
  template <class Row>
  static bool alike(const Row& row, int64_t s, int64_t t) {
    for (int64_t i = 0; i < kContext; ++i)
      if (row[s - i] != row[t - i]) return false;
    return true;
  }

  int64_t reach_;
  torch::Tensor weight_;
};

}  // namespace tempera::eval
