#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tempera/nn/model.h"

// What the attentions of a model did in one pass over one text. No matrix of all pairs is made or
// kept: the weights of any rows and keys are computed anew from the queries and the keys.
namespace tempera::lens {

enum class AttentionRole : uint8_t { kSelf, kEncoder, kDecoder, kCross };

// "self", "encoder", "decoder", "cross"
std::string_view role_name(AttentionRole role);

// What is known of every row of a head.
enum class Metric : uint8_t { kEntropy, kFirst, kKeys, kLargest, kTemperature };
inline constexpr std::array kMetrics = {Metric::kEntropy, Metric::kFirst, Metric::kKeys,
                                        Metric::kLargest, Metric::kTemperature};
struct MetricName {
  std::string_view key;    // in files
  std::string_view label;  // for people
};
MetricName name_of(Metric metric);

struct Attention {
  AttentionRole role = AttentionRole::kSelf;
  int64_t layer = 0;
  // (heads, rows, size) and (key heads, keys, size), their scales and the constant one multiplied
  // in, so that a logit is <q, k> + bias, capped.
  torch::Tensor q = {}, k = {};
  // (heads, rows) and (key heads, keys). Of a long text q and k are whole numbers, and a row of
  // them is to be multiplied by its step. Undefined: q and k are float32.
  torch::Tensor q_step = {}, k_step = {};
  torch::Tensor bias = {};  // (1 or heads, rows, keys); undefined: none
  double cap = 0;           // > 0: cap * tanh(logit / cap)
  bool causal = false;
  std::optional<int64_t> window = {};
  // (heads, rows) float32.
  torch::Tensor lse = {}, entropy = {}, largest = {};
  torch::Tensor first = {};    // the weight of the first key
  torch::Tensor inverse = {};  // of the temperature t in softmax(<q, k> / (t sqrt(size)))

  int64_t heads() const { return q.size(0); }
  int64_t rows() const { return q.size(1); }
  int64_t keys() const { return k.size(1); }
  // (heads, rows). A temperature is NaN where its inverse is not above 0.
  torch::Tensor metric(Metric metric) const;
  // (heads): the largest logit of all rows; of the other metrics the mean.
  torch::Tensor over_rows(Metric metric) const;
};

struct NextToken {
  int64_t id = 0;
  double log_probability = 0;
};

struct View {
  std::vector<Attention> attentions;  // in the order in which the model computes them
  torch::Tensor losses;               // (T) float32, NaN where nothing is predicted: of the first
                                      // token, and of all where the model is an encoder
  std::vector<NextToken> next;        // the likeliest tokens after the text; none of an encoder
  bool rounded = false;               // queries and keys are kept in 16 bits
  torch::Tensor output;               // (T, width): what the losses follow from, as long as there
                                      // are none
  // (T, width) each: what every `state_stride`-th layer begins with, from the first one on.
  std::vector<torch::Tensor> states = {};
  int64_t state_stride = 1;
};

struct LookOptions {
  // By attention (in order) and head: multiplies the temperature. Empty: as they are.
  std::vector<std::vector<double>> factors = {};
  uint64_t most_bytes = uint64_t{5} << 28;  // of queries and keys in float32; above it, 16 bits
  int64_t next_tokens = 10;
  bool losses = true;        // else find_losses() can add them later
  uint64_t state_bytes = 0;  // of View::states; 0: none are kept
  // What the model did with the same text as it is: what no factor changes is taken from there.
  const View* as_it_is = nullptr;
  std::function<void(int64_t attentions)> report = {};  // how many are done; may throw
};

// The batch holds one sequence without padding. The model is in eval mode, on the CPU.
View look(nn::Model& model, const nn::Batch& batch, const LookOptions& options = {});

// The losses of a view that has none, of the same tokens.
void find_losses(nn::Model& model, const torch::Tensor& tokens, View& view);

// How many attentions the model has.
int64_t attention_count(const nn::ModelConfig& config);

}  // namespace tempera::lens
