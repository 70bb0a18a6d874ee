#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/temperature/shape.h"

namespace tempera::nn {

enum class ModelKind { kDecoder, kEncoder, kEncoderDecoder };
// What an encoder scores.
enum class HeadKind { kTokens, kSequence, kNone };
enum class NormKind { kLayer, kRms };
enum class NormPlacement {
  kPre,     // x + f(norm(x))
  kPost,    // norm(x + f(x))
  kOutput,  // x + norm(f(x))
  kBoth     // x + norm(f(norm(x)))
};
enum class QkNorm {
  kNone,
  kPlain,  // of every head, without a gain
  kGain,   // of every head, with a gain that the heads share
  kWide    // of all heads together, with a gain
};
enum class AttentionBias { kNone, kInputs, kAll };
enum class PositionKind { kRope, kLearned, kSinusoidal, kT5, kNone };
enum class RopeScaling { kNone, kLinear, kDynamic, kYarn, kLlama3, kFactors };
enum class Activation { kSwiglu, kGegluTanh, kGelu, kGeluTanh, kRelu };
enum class InitKind { kNormal, kFanIn };

// Which temperature, with which options, in which layers.
struct TemperatureConfig {
  std::string method = "softmax";  // or a product, "head,value"
  std::string layers = "all";      // "all", "4-", "0-3,6", counted from 0
  MethodOptions options = {};      // what is not given has the method's default

  bool operator==(const TemperatureConfig&) const = default;
  // The group, `temperature` or another; the options of the method are its members.
  void declare(config::Options& options, Origin origin = Origin::kScratch,
               const char* group = "temperature");
};

// As a method's name: of the cross-attention, what the self-attention has.
inline constexpr std::string_view kSameMethod = "same";

inline bool is_gated(Activation activation) {
  return activation == Activation::kSwiglu || activation == Activation::kGegluTanh;
}

// The rotary angles: position * base^(-2i/r), with what stretches them to longer contexts.
struct RopeConfig {
  double base = 10000;
  double fraction = 1;  // of a head's columns
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int64_t original_context = 0;  // yarn, llama3, factors: the length before stretching
  double low_factor = 1;         // llama3
  double high_factor = 4;
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  bool truncate = true;
  // yarn, factors: of cosines and sines; 0: 0.1 ln(factor) + 1 and 1
  double attention_factor = 0;
  std::vector<double> factors = {};  // factors: by which each frequency is divided
  // factors: those of texts up to original_context; empty: the same
  std::vector<double> short_factors = {};
  bool learned = false;  // factors: the model has a parameter that moves them

  bool operator==(const RopeConfig&) const = default;
  void declare(config::Options& options);
};

// Low-rank adapters beside the matrices of attention and MLP (E. Hu et al., "LoRA", 2021).
struct LoraConfig {
  int64_t rank = 0;  // 0: none
  double alpha = 16;

  bool operator==(const LoraConfig&) const = default;
  double scale() const { return rank > 0 ? alpha / static_cast<double>(rank) : 0; }
  void declare(config::Options& options);
};

// The shape of a model. Zeros stand for what follows from the rest; the functions below say what.
struct ModelConfig {
  ModelKind kind = ModelKind::kDecoder;
  int64_t vocabulary = 0;
  int64_t outputs = 0;
  int64_t layers = 6;          // of an encoder-decoder: of its encoder
  int64_t decoder_layers = 0;  // encoder-decoder
  int64_t width = 384;
  int64_t heads = 6;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t mlp_size = 0;
  int64_t context = 512;
  int64_t window = 0;
  std::string window_layers = "all";
  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kPre;
  bool parallel_residual = false;
  double norm_eps = 1e-6;
  QkNorm qk_norm = QkNorm::kNone;
  PositionKind position = PositionKind::kRope;
  RopeConfig rope = {};
  Activation activation = Activation::kSwiglu;
  AttentionBias attention_bias = AttentionBias::kNone;
  bool mlp_bias = false;
  bool tied_embeddings = true;
  bool token_shift = false;
  int64_t token_types = 0;      // encoder: kinds of tokens, each with an embedding
  bool embedding_norm = false;  // of the embeddings, before the first block
  HeadKind head = HeadKind::kTokens;
  bool head_transform =
      false;            // encoder: matrix, activation and norm before the output, and a bias
  bool pooler = false;  // encoder: tanh of a matrix times the first row
  double embedding_scale = 1;
  double residual_scale = 1;
  double logit_scale = 1;
  double logit_cap = 0;
  double attention_scale = 0;
  double attention_cap = 0;
  double dropout_embedding = 0;
  double dropout_residual = 0;
  double dropout_attention = 0;
  InitKind init = InitKind::kNormal;
  double init_std = 0.02;
  LoraConfig lora = {};
  TemperatureConfig temperature = {};
  TemperatureConfig cross_temperature = {.method = std::string(kSameMethod)};

  bool operator==(const ModelConfig&) const = default;
  // The groups `model`, `temperature` and `cross-temperature`.
  void declare(config::Options& options);
  // The group `model` alone.
  void declare_model(config::Options& options);
  // Throws UsageError unless a model can be built.
  void validate() const;

  int64_t output_count() const { return outputs > 0 ? outputs : vocabulary; }
  int64_t kv_head_count() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t size_of_head() const { return head_size > 0 || heads <= 0 ? head_size : width / heads; }
  int64_t size_of_mlp() const;
  // Columns of a head that rotate.
  int64_t rotary_size() const;
  // The longest sequence; 0: no bound.
  int64_t max_length() const { return position == PositionKind::kLearned ? context : 0; }
  // The window of one layer; unset: it has none.
  std::optional<int64_t> attention_window(int64_t layer) const;
  // The layers that have an attention of this kind.
  int64_t layer_count(AttentionKind attention) const;
  LayerShape layer_shape(int64_t layer, AttentionKind attention = AttentionKind::kCausal) const;
  // The temperature of one layer; softmax where it has none.
  std::vector<MethodSpec> method_of_layer(int64_t layer,
                                          AttentionKind attention = AttentionKind::kCausal) const;

 private:
  void validate_kind() const;
  void validate_rope() const;
};

// The model of the built-in phone-book task: one block without positions that sees the token before
// by a learned shift, so that one layer suffices.
ModelConfig phonebook_model();

// Whether each of `count` layers is in a list such as "all", "4-" or "0-3,6".
std::vector<bool> parse_layers(std::string_view text, int64_t count);

}  // namespace tempera::nn
