#include "tempera/families/llama.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/families/common_fields.h"

// Llama and the families that differ from it in a few points.
namespace tempera::families {
namespace {

using nn::Activation;
using nn::AttentionBias;
using nn::ModelConfig;
using nn::NormPlacement;
using nn::QkNorm;

void llama_shape(ModelConfig& c) {
  c.norm = nn::NormKind::kRms;
  c.position = nn::PositionKind::kRope;
  c.activation = Activation::kSwiglu;
}

std::vector<Rule> with_norms(std::vector<Rule> rules,
                             const std::vector<std::pair<std::string, std::string>>& norms,
                             Layout layout = Layout::kSame) {
  for (Rule& rule : rules)
    if (rule.ours == "norm.weight") rule.parts[0].layout = layout;
  for (const auto& [ours, theirs] : norms)
    rules.push_back(
        {"layers.{}." + ours + ".weight", {{"model.layers.{}." + theirs + ".weight", layout}}});
  return rules;
}

std::vector<Rule> pre_norm_rules(const ModelConfig& /*config*/) {
  return with_norms(llama_rules(), {{"attention_norm", "input_layernorm"},
                                    {"mlp_norm", "post_attention_layernorm"}});
}

// Everything after shape_fields that all of them have.
void common_fields(Fields& f, ModelConfig& c, double eps) {
  f.number("rms_norm_eps", c.norm_eps, eps);
  f.flag("tie_word_embeddings", c.tied_embeddings, false);
  f.number("attention_dropout", c.dropout_attention, 0);
  f.ignore({"pretraining_tp", "hidden_dropout"});
}

void silu_field(Fields& f) { f.fixed("hidden_act", "silu"); }

// absent: what the family takes where the field is missing; 0: the width divided by the heads. The
// field is written wherever that would be another size.
void head_size_field(Fields& f, ModelConfig& c, int64_t absent = 0) {
  int64_t size = f.reading() ? 0 : c.size_of_head();
  if (f.reading() || c.head_size > 0 || absent > 0) f.integer("head_dim", size, absent);
  if (f.reading()) c.head_size = c.heads > 0 && size * c.heads == c.width ? 0 : size;
}

// One switch for the biases of all four projections.
void all_biases_field(Fields& f, ModelConfig& c) {
  bool has = c.attention_bias == AttentionBias::kAll;
  f.flag("attention_bias", has, false);
  c.attention_bias = has ? AttentionBias::kAll : AttentionBias::kNone;
}

std::vector<bool> layers(const ModelConfig& c, bool value) {
  // The count comes from a file; a list of that length is made only where it can be a model's.
  TEMPERA_CHECK(c.layers > 0 && c.layers <= 10000, "num_hidden_layers: ", c.layers,
                " given, 1 to 10000 expected");
  return std::vector<bool>(static_cast<size_t>(c.layers), value);
}

void llama_fields(Fields& f, ModelConfig& c) {
  shape_fields(f, c);
  silu_field(f);
  common_fields(f, c, 1e-6);
  head_size_field(f, c);
  rope_fields(f, c);
  all_biases_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  f.ignore({"rope_interleaved", "is_llama_config"});
}

void mistral_fields(Fields& f, ModelConfig& c) {
  shape_fields(f, c, 8);
  silu_field(f);
  common_fields(f, c, 1e-6);
  head_size_field(f, c);
  rope_fields(f, c);
  window_fields(f, c, layers(c, true));
}

// The window of Qwen: the layers from max_window_layers on, where it is switched on.
void qwen_window_fields(Fields& f, ModelConfig& c) {
  bool used = c.window > 0;
  f.flag("use_sliding_window", used, false);
  constexpr int64_t kAbsentFull = 28;
  int64_t full = kAbsentFull;
  if (f.reading()) f.integer("max_window_layers", full, kAbsentFull);
  auto chosen = layers(c, used);
  for (int64_t layer = 0; layer < std::min(full, c.layers); ++layer)
    chosen[static_cast<size_t>(layer)] = false;
  window_fields(f, c, chosen);
  if (!f.reading()) return;
  if (!used) c.window = 0;
  if (c.window == 0) c.window_layers = "all";
}

void qwen2_shape(ModelConfig& c) {
  llama_shape(c);
  c.attention_bias = AttentionBias::kInputs;
}

void qwen_fields(Fields& f, ModelConfig& c, int64_t head_size) {
  shape_fields(f, c, 32);
  silu_field(f);
  common_fields(f, c, 1e-6);
  head_size_field(f, c, head_size);
  rope_fields(f, c);
  qwen_window_fields(f, c);
}

void qwen2_fields(Fields& f, ModelConfig& c) { qwen_fields(f, c, 0); }

void qwen3_shape(ModelConfig& c) {
  llama_shape(c);
  c.qk_norm = QkNorm::kGain;
}

void qwen3_fields(Fields& f, ModelConfig& c) {
  qwen_fields(f, c, 128);
  all_biases_field(f, c);
}

void granite_fields(Fields& f, ModelConfig& c) {
  llama_fields(f, c);
  f.number("embedding_multiplier", c.embedding_scale, 1);
  f.number("residual_multiplier", c.residual_scale, 1);
  // The file has the multiplier even where it is what others take as given.
  double attention = c.attention_scale;
  if (!f.reading() && attention == 0)
    attention = 1 / std::sqrt(static_cast<double>(c.size_of_head()));
  f.number("attention_multiplier", attention, 1);
  c.attention_scale = attention;
  double divisor = 1 / c.logit_scale;
  f.number("logits_scaling", divisor, 1);
  TEMPERA_CHECK(divisor != 0, f.where(), ": logits_scaling: 0 given, another number expected");
  c.logit_scale = 1 / divisor;
}

void gemma2_shape(ModelConfig& c) {
  llama_shape(c);
  c.norm_placement = NormPlacement::kBoth;
  c.activation = Activation::kGegluTanh;
}

// A soft cap of logits; null: none.
void cap_field(Fields& f, std::string_view key, double& cap, double absent) {
  if (!f.reading() && cap == 0) return f.set(key, nullptr);
  f.number(key, cap, f.stated(key) ? 0 : absent);
}

void gemma2_fields(Fields& f, ModelConfig& c) {
  shape_fields(f, c, 4);
  f.fixed("hidden_activation", "gelu_pytorch_tanh");
  f.ignore({"hidden_act"});  // older files name another one there, which was never used
  common_fields(f, c, 1e-6);
  if (f.reading()) f.flag("tie_word_embeddings", c.tied_embeddings, true);
  head_size_field(f, c, 256);
  rope_fields(f, c);
  all_biases_field(f, c);
  auto sliding = layers(c, false);
  for (size_t layer = 0; layer < sliding.size(); layer += 2) sliding[layer] = true;
  window_fields(f, c, sliding);
  cap_field(f, "attn_logit_softcapping", c.attention_cap, kGemmaAttentionCap);
  cap_field(f, "final_logit_softcapping", c.logit_cap, kGemmaLogitCap);
  double scalar = c.attention_scale > 0 ? 1 / (c.attention_scale * c.attention_scale)
                                        : static_cast<double>(c.size_of_head());
  // Whole in all files, and readers insist on it.
  if (!f.reading() && std::abs(scalar - std::round(scalar)) < 1e-9)
    f.set("query_pre_attn_scalar", std::llround(scalar));
  else
    f.number("query_pre_attn_scalar", scalar, 256);
  TEMPERA_CHECK(scalar > 0, f.where(), ": query_pre_attn_scalar: ", scalar,
                " given, above 0 expected");
  c.attention_scale = 1 / std::sqrt(scalar);
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
}

void olmo2_shape(ModelConfig& c) {
  llama_shape(c);
  c.norm_placement = NormPlacement::kOutput;
  c.qk_norm = QkNorm::kWide;
}

void olmo2_fields(Fields& f, ModelConfig& c) {
  shape_fields(f, c);
  silu_field(f);
  common_fields(f, c, 1e-5);
  rope_fields(f, c);
  all_biases_field(f, c);
}

std::vector<Rule> gemma2_rules(const ModelConfig& /*config*/) {
  return with_norms(llama_rules(),
                    {{"attention_norm", "input_layernorm"},
                     {"attention_output_norm", "post_attention_layernorm"},
                     {"mlp_norm", "pre_feedforward_layernorm"},
                     {"mlp_output_norm", "post_feedforward_layernorm"}},
                    Layout::kMinusOne);
}

std::vector<Rule> olmo2_rules(const ModelConfig& /*config*/) {
  return with_norms(llama_rules(), {{"attention_norm", "post_attention_layernorm"},
                                    {"mlp_norm", "post_feedforward_layernorm"}});
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"llama", "LlamaForCausalLM", "llama", llama_shape, llama_fields, pre_norm_rules},
          {"mistral", "MistralForCausalLM", "llama", llama_shape, mistral_fields, pre_norm_rules},
          {"qwen2", "Qwen2ForCausalLM", "qwen2", qwen2_shape, qwen2_fields, pre_norm_rules},
          {"qwen3", "Qwen3ForCausalLM", "qwen3", qwen3_shape, qwen3_fields, pre_norm_rules},
          {"granite", "GraniteForCausalLM", "granite", llama_shape, granite_fields, pre_norm_rules},
          {"gemma2", "Gemma2ForCausalLM", "gemma2", gemma2_shape, gemma2_fields, gemma2_rules},
          {"olmo2", "Olmo2ForCausalLM", "olmo2", olmo2_shape, olmo2_fields, olmo2_rules}};
}

}  // namespace tempera::families
