#include "tempera/families/gpt.h"

#include "tempera/families/common_fields.h"

namespace tempera::families {
namespace {

using nn::Activation;
using nn::AttentionBias;
using nn::ModelConfig;

void gpt2_shape(ModelConfig& c) {
  c.norm = nn::NormKind::kLayer;
  c.position = nn::PositionKind::kLearned;
  c.attention_bias = AttentionBias::kAll;
  c.mlp_bias = true;
}

void gpt2_fields(Fields& f, ModelConfig& c) {
  f.integer("vocab_size", c.vocabulary);
  f.integer("n_embd", c.width);
  f.integer("n_layer", c.layers);
  f.integer("n_head", c.heads);
  f.integer("n_positions", c.context);
  f.integer("n_inner", c.mlp_size, 4 * c.width);
  f.choice("activation_function", c.activation, "gelu_new", plain_activations());
  f.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tied_embeddings, true);
  f.number("embd_pdrop", c.dropout_embedding, 0.1);
  f.number("resid_pdrop", c.dropout_residual, 0.1);
  f.number("attn_pdrop", c.dropout_attention, 0.1);
  f.fixed("scale_attn_weights", true);
  f.fixed("scale_attn_by_inverse_layer_idx", false);
  f.fixed("add_cross_attention", false);
  f.ignore({"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
            "summary_proj_to_labels", "summary_type", "summary_use_proj"});
}

std::vector<Rule> gpt2_rules(const ModelConfig& /*config*/) {
  const std::string layer = "transformer.h.{}.";
  std::vector<Rule> rules = {{"embedding.weight", {{"transformer.wte.weight"}}},
                             {"positions.weight", {{"transformer.wpe.weight"}}},
                             {"head.weight", {{"lm_head.weight"}}}};
  for (const std::string what : {"weight", "bias"}) {
    const Layout matrix = what == "weight" ? Layout::kTransposed : Layout::kSame;
    const auto add = [&](const std::string& ours, const std::string& theirs, Layout layout) {
      rules.push_back({"layers.{}." + ours + "." + what, {{layer + theirs + "." + what, layout}}});
    };
    add("attention_norm", "ln_1", Layout::kSame);
    add("attention.qkv", "attn.c_attn", matrix);
    add("attention.out", "attn.c_proj", matrix);
    add("mlp_norm", "ln_2", Layout::kSame);
    add("mlp.in", "mlp.c_fc", matrix);
    add("mlp.out", "mlp.c_proj", matrix);
    rules.push_back({"norm." + what, {{"transformer.ln_f." + what}}});
  }
  return rules;
}

void neox_shape(ModelConfig& c) {
  c.norm = nn::NormKind::kLayer;
  c.position = nn::PositionKind::kRope;
  c.mlp_bias = true;
}

void neox_fields(Fields& f, ModelConfig& c) {
  named_sizes(f, c);
  f.choice("hidden_act", c.activation, "gelu", plain_activations());
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("use_parallel_residual", c.parallel_residual, true);
  f.flag("tie_word_embeddings", c.tied_embeddings, false);
  f.number("hidden_dropout", c.dropout_residual, 0);
  f.number("attention_dropout", c.dropout_attention, 0);
  bool bias = c.attention_bias == AttentionBias::kAll;
  f.flag("attention_bias", bias, true);
  c.attention_bias = bias ? AttentionBias::kAll : AttentionBias::kNone;
  if (f.reading()) {
    rope_fields(f, c);
    const auto* given = f.find("rotary_pct");
    const auto* parameters = f.find("rope_parameters");
    const bool stated = given || f.find("partial_rotary_factor") ||
                        (parameters && parameters->contains("partial_rotary_factor"));
    if (!stated) c.rope.fraction = 0.25;  // what the family has where nothing is said
  } else {
    rope_fields(f, c);
    f.set("rotary_pct", c.rope.fraction);
    f.set("rotary_emb_base", c.rope.base);
  }
  f.ignore({"classifier_dropout", "is_decoder"});
}

std::vector<Rule> neox_rules(const ModelConfig& /*config*/) {
  const std::string layer = "gpt_neox.layers.{}.";
  std::vector<Rule> rules = {{"embedding.weight", {{"gpt_neox.embed_in.weight"}}},
                             {"head.weight", {{"embed_out.weight"}}}};
  for (const std::string what : {"weight", "bias"}) {
    const auto add = [&](const std::string& ours, const std::string& theirs,
                         Layout layout = Layout::kSame) {
      rules.push_back({"layers.{}." + ours + "." + what, {{layer + theirs + "." + what, layout}}});
    };
    add("attention_norm", "input_layernorm");
    add("attention.qkv", "attention.query_key_value", Layout::kByHead);
    add("attention.out", "attention.dense");
    add("mlp_norm", "post_attention_layernorm");
    add("mlp.in", "mlp.dense_h_to_4h");
    add("mlp.out", "mlp.dense_4h_to_h");
    rules.push_back({"norm." + what, {{"gpt_neox.final_layer_norm." + what}}});
  }
  return rules;
}

}  // namespace

std::vector<Family> gpt_families() {
  return {{"gpt2", "GPT2LMHeadModel", "gpt2", gpt2_shape, gpt2_fields, gpt2_rules, "transformer."},
          {"gpt_neox", "GPTNeoXForCausalLM", "gptneox", neox_shape, neox_fields, neox_rules,
           "gpt_neox."}};
}

}  // namespace tempera::families
