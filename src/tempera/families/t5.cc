#include "tempera/families/t5.h"

#include <cmath>

#include "tempera/families/common_fields.h"

namespace tempera::families {
namespace {

using nn::Activation;
using nn::ModelConfig;

void t5_shape(ModelConfig& c) {
  c.kind = nn::ModelKind::kEncoderDecoder;
  c.norm = nn::NormKind::kRms;
  c.position = nn::PositionKind::kT5;
  c.activation = Activation::kRelu;
  c.attention_scale = 1;
}

const std::vector<std::pair<std::string, Activation>>& projections() {
  static const std::vector<std::pair<std::string, Activation>> known = {
      {"relu", Activation::kRelu},
      {"gated-gelu", Activation::kGegluTanh},
      {"gated-silu", Activation::kSwiglu}};
  return known;
}

// Scores are divided by sqrt(d_model), unless a field says otherwise: in older files the one that
// says whether the output matrix is the token table.
void output_fields(Fields& f, ModelConfig& c) {
  const double divided = 1 / std::sqrt(static_cast<double>(c.width));
  f.flag("tie_word_embeddings", c.tied_embeddings, true);
  bool scaled = c.logit_scale == divided;
  f.flag("scale_decoder_outputs", scaled, c.tied_embeddings);
  if (f.reading()) c.logit_scale = scaled ? divided : 1;
}

void t5_fields(Fields& f, ModelConfig& c) {
  f.integer("vocab_size", c.vocabulary);
  f.integer("d_model", c.width);
  f.integer("num_layers", c.layers);
  int64_t decoder = c.layer_count(AttentionKind::kCausal);
  f.integer("num_decoder_layers", decoder, c.layers);
  c.decoder_layers = decoder;
  f.integer("num_heads", c.heads);
  int64_t size = f.reading() ? 0 : c.size_of_head();
  f.integer("d_kv", size, 64);
  if (f.reading()) c.head_size = size;
  f.integer("d_ff", c.mlp_size);
  f.integer("n_positions", c.context, 512);
  f.choice("feed_forward_proj", c.activation, "relu", projections());
  f.number("layer_norm_epsilon", c.norm_eps, 1e-6);
  f.number("dropout_rate", c.dropout_residual, 0.1);
  c.dropout_embedding = c.dropout_attention = c.dropout_residual;
  f.fixed("relative_attention_num_buckets", 32);
  f.fixed("relative_attention_max_distance", 128);
  output_fields(f, c);
  f.fixed("is_encoder_decoder", true);
  f.ignore({"dense_act_fn", "is_gated_act", "initializer_factor", "is_decoder", "output_past"});
}

// attention, cross_attention or mlp of a half, in the names of its `place`.
class HalfRules {
 public:
  HalfRules(std::vector<Rule>& rules, const std::string& half) : rules_(rules), half_(half) {}

  std::string theirs(int place) const {
    return half_ + ".block.{}.layer." + std::to_string(place) + ".";
  }
  void add(const std::string& ours, const std::vector<std::string>& names) {
    Rule rule{half_ + ".layers.{}." + ours + ".weight", {}};
    for (const std::string& name : names) rule.parts.push_back({name + ".weight"});
    rules_.push_back(std::move(rule));
  }
  void self_attention(int place) {
    const std::string at = theirs(place) + "SelfAttention.";
    add("attention.qkv", {at + "q", at + "k", at + "v"});
    add("attention.out", {at + "o"});
    add("attention_norm", {theirs(place) + "layer_norm"});
  }
  void cross_attention(int place) {
    const std::string at = theirs(place) + "EncDecAttention.";
    add("cross_attention.q", {at + "q"});
    add("cross_attention.kv", {at + "k", at + "v"});
    add("cross_attention.out", {at + "o"});
    add("cross_norm", {theirs(place) + "layer_norm"});
  }
  void mlp(int place, bool gated) {
    const std::string at = theirs(place) + "DenseReluDense.";
    if (gated)
      add("mlp.in", {at + "wi_0", at + "wi_1"});
    else
      add("mlp.in", {at + "wi"});
    add("mlp.out", {at + "wo"});
    add("mlp_norm", {theirs(place) + "layer_norm"});
  }

 private:
  std::vector<Rule>& rules_;
  std::string half_;
};

std::vector<Rule> t5_rules(const ModelConfig& c) {
  std::vector<Rule> rules = {{"embedding.weight", {{"shared.weight"}}},
                             {"head.weight", {{"lm_head.weight"}}}};
  for (const std::string half : {"encoder", "decoder"}) {
    rules.push_back({half + ".norm.weight", {{half + ".final_layer_norm.weight"}}});
    rules.push_back({half + ".relative_bias.weight",
                     {{half + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"}}});
    HalfRules part(rules, half);
    int place = 0;
    part.self_attention(place++);
    if (half == "decoder") part.cross_attention(place++);
    part.mlp(place, nn::is_gated(c.activation));
  }
  return rules;
}

}  // namespace

std::vector<Family> t5_families() {
  return {{.name = "t5",
           .architecture = "T5ForConditionalGeneration",
           .gguf = "",
           .shape = t5_shape,
           .fields = t5_fields,
           .rules = t5_rules,
           .unused = {"embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"}}};
}

}  // namespace tempera::families
