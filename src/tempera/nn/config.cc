#include "tempera/nn/config.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/temperature/registry.h"

namespace tempera::nn {
namespace {

using config::EnumChoices;
using config::range;

void declare_shape(ModelConfig& c, config::Options& options) {
  options.section(config::Section::kModel);
  options.option("kind", c.kind,
                 EnumChoices<ModelKind>{{{"decoder", ModelKind::kDecoder},
                                         {"encoder", ModelKind::kEncoder},
                                         {"encoder-decoder", ModelKind::kEncoderDecoder}}},
                 "decoder (causal), encoder (bidirectional), or both with cross-attention",
                 {.alias = "kind"});
  options.option("vocabulary", c.vocabulary, range(0, 1e9), "vocabulary size; 0: that of the data");
  options.option("outputs", c.outputs, range(0, 1e9), "output classes; 0: the vocabulary");
  options.option("layers", c.layers, range(1, 10000), "transformer blocks", {.alias = "layers"});
  options.option("decoder-layers", c.decoder_layers, range(0, 10000),
                 "encoder-decoder: blocks of the decoder; 0: as many as the encoder has");
  options.option("width", c.width, range(1, 1e6), "hidden size", {.alias = "width"});
  options.option("heads", c.heads, range(1, 10000), "attention heads per layer",
                 {.alias = "heads"});
  options.option("kv-heads", c.kv_heads, range(0, 10000),
                 "key-value heads per layer (GQA); 0: as many as heads", {.alias = "kv-heads"});
  options.option("head-size", c.head_size, range(0, 256), "size of a head; 0: width / heads");
  options.option(
      "mlp-size", c.mlp_size, range(0, 1e7),
      "hidden size of the MLP; 0: 8/3 of the width for swiglu, otherwise 4 times the width");
  options.option("context", c.context, range(1, 1e9), "training context length in tokens",
                 {.alias = "context"});
  options.option("window", c.window, range(0, 1e9), "sliding window in tokens; 0: none");
  options.option("window-layers", c.window_layers,
                 "layers with the sliding window: all, 4-, 0-3,6");
  options.option("token-shift", c.token_shift,
                 "add the previous token's embedding, scaled by a learned vector");
  options.option("tied-embeddings", c.tied_embeddings,
                 "share the embedding matrix with the output layer");
  options.option("token-types", c.token_types, range(0, 1e6),
                 "encoder: number of token-type embeddings; 0: none");
}

void declare_head(ModelConfig& c, config::Options& options) {
  options.option(
      "head", c.head,
      EnumChoices<HeadKind>{{{"tokens", HeadKind::kTokens},
                             {"sequence", HeadKind::kSequence},
                             {"none", HeadKind::kNone}}},
      "encoder: output head, over every token, over the sequence (classification), or none");
  options.option(
      "head-transform", c.head_transform,
      "encoder: BERT's transform before the output (dense, activation, norm) and an output bias");
  options.option(
      "pooler", c.pooler,
      "encoder: BERT's pooler (tanh of a dense layer on the first token) in place of the mean");
}

void declare_parts(ModelConfig& c, config::Options& options) {
  options.option("norm", c.norm,
                 EnumChoices<NormKind>{{{"layer", NormKind::kLayer}, {"rms", NormKind::kRms}}},
                 "LayerNorm or RMSNorm");
  options.option("norm-placement", c.norm_placement,
                 EnumChoices<NormPlacement>{{{"pre", NormPlacement::kPre},
                                             {"post", NormPlacement::kPost},
                                             {"output", NormPlacement::kOutput},
                                             {"both", NormPlacement::kBoth}}},
                 "norm before each sublayer, after its residual sum, on its output, or before it "
                 "and on its output");
  options.option("parallel-residual", c.parallel_residual,
                 "attention and MLP in parallel, as in GPT-NeoX");
  options.option("embedding-norm", c.embedding_norm, "normalise the embeddings");
  options.option("norm-eps", c.norm_eps, config::above_to(0, 1), "epsilon of the norms");
  options.option("qk-norm", c.qk_norm,
                 EnumChoices<QkNorm>{{{"none", QkNorm::kNone},
                                      {"plain", QkNorm::kPlain},
                                      {"gain", QkNorm::kGain},
                                      {"wide", QkNorm::kWide}}},
                 "RMSNorm of queries and keys: per head without a gain (plain), per head with a "
                 "learned gain, or over all heads together (wide)");
  options.option("position", c.position,
                 EnumChoices<PositionKind>{{{"rope", PositionKind::kRope},
                                            {"learned", PositionKind::kLearned},
                                            {"sinusoidal", PositionKind::kSinusoidal},
                                            {"t5", PositionKind::kT5},
                                            {"none", PositionKind::kNone}}},
                 "position encoding");
  options.group("rope", c.rope);
  options.group("lora", c.lora);
  options.option("activation", c.activation,
                 EnumChoices<Activation>{{{"swiglu", Activation::kSwiglu},
                                          {"geglu-tanh", Activation::kGegluTanh},
                                          {"gelu", Activation::kGelu},
                                          {"gelu-tanh", Activation::kGeluTanh},
                                          {"relu", Activation::kRelu}}},
                 "activation of the MLP");
  options.option("attention-bias", c.attention_bias,
                 EnumChoices<AttentionBias>{{{"none", AttentionBias::kNone},
                                             {"inputs", AttentionBias::kInputs},
                                             {"all", AttentionBias::kAll}}},
                 "biases in the attention projections: none, in q, k and v, or in all four");
  options.option("mlp-bias", c.mlp_bias, "biases in the MLP");
  options.option("dropout-embedding", c.dropout_embedding, range(0, 0.999),
                 "dropout on the embeddings");
  options.option("dropout-residual", c.dropout_residual, range(0, 0.999),
                 "dropout on the output of each sublayer");
  options.option("dropout-attention", c.dropout_attention, range(0, 0.999),
                 "dropout on the attention weights");
  options.option(
      "init", c.init,
      EnumChoices<InitKind>{{{"normal", InitKind::kNormal}, {"fan-in", InitKind::kFanIn}}},
      "normal: N(0, std^2), output projections divided by sqrt(2 layers); fan-in: uniform within "
      "1/sqrt(inputs), embeddings N(0, 1/width)");
  options.option("init-std", c.init_std, config::above_to(0, 10),
                 "standard deviation for init = normal");
}

void declare_scales(ModelConfig& c, config::Options& options) {
  options.option("embedding-scale", c.embedding_scale, range(-1e6, 1e6),
                 "multiplies the token embeddings");
  options.option("residual-scale", c.residual_scale, range(-1e6, 1e6),
                 "multiplies the output of each sublayer");
  options.option("logit-scale", c.logit_scale, range(-1e6, 1e6), "multiplies the output logits");
  options.option("logit-cap", c.logit_cap, range(0, 1e6), "soft cap on the output logits; 0: none");
  options.option("attention-scale", c.attention_scale, range(0, 1e6),
                 "multiplies the attention logits; 0: 1 / sqrt(head size)");
  options.option("attention-cap", c.attention_cap, range(0, 1e6),
                 "soft cap on the attention logits; 0: none");
}

// The members of the group `model`; ModelConfig itself declares more than one group.
struct ModelGroup {
  ModelConfig& config;
  void declare(config::Options& options) {
    declare_shape(config, options);
    declare_head(config, options);
    declare_parts(config, options);
    declare_scales(config, options);
  }
};

struct TemperatureGroup {
  TemperatureConfig& config;
  const char* name;
  void declare(config::Options& options) {
    options.option(
        "method", config.method,
        config.method == kSameMethod
            ? "temperature method of the cross-attention; same: that of the self-attention"
            : "attention temperature method, or a product such as head,value (`tempera methods`)",
        {.alias = name});
    options.option("layers", config.layers, "layers with this temperature: all, 4-, 0-3,6");
  }
};

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw UsageError(concat(parts...));
}

}  // namespace

void LoraConfig::declare(config::Options& options) {
  options.option("rank", rank, config::range(0, 4096),
                 "LoRA rank, for all matrices of attention and MLP; 0: no adapters");
  options.option("alpha", alpha, config::above_to(0, 1e6),
                 "LoRA alpha: adapters are scaled by alpha / rank");
}

void RopeConfig::declare(config::Options& options) {
  options.option("base", base, config::above_to(1, 1e12), "RoPE base (theta)",
                 {.alias = "rope-base"});
  options.option("fraction", fraction, config::above_to(0, 1),
                 "rotary share of a head's dimensions");
  options.option("scaling", scaling,
                 EnumChoices<RopeScaling>{{{"none", RopeScaling::kNone},
                                           {"linear", RopeScaling::kLinear},
                                           {"dynamic", RopeScaling::kDynamic},
                                           {"yarn", RopeScaling::kYarn},
                                           {"llama3", RopeScaling::kLlama3},
                                           {"factors", RopeScaling::kFactors}}},
                 "RoPE scaling for a longer context");
  options.option("factor", factor, config::above_to(0, 1e6), "RoPE scaling factor");
  options.option("original-context", original_context, range(0, 1e9),
                 "yarn, llama3, factors: context length before the scaling");
  options.option("low-factor", low_factor, config::above_to(0, 1e6),
                 "llama3: wavelengths above original-context / this are scaled");
  options.option("high-factor", high_factor, config::above_to(0, 1e6),
                 "llama3: wavelengths below original-context / this are not scaled");
  options.option("beta-fast", beta_fast, config::above_to(0, 1e6),
                 "yarn: dimensions with more rotations in original-context are not scaled");
  options.option("beta-slow", beta_slow, config::above_to(0, 1e6),
                 "yarn: dimensions with fewer rotations are fully scaled");
  options.option("truncate", truncate, "yarn: round the ends of the ramp to whole dimensions");
  options.option("attention-factor", attention_factor, range(0, 1e6),
                 "yarn, factors: multiplies cosines and sines; 0: 0.1 ln(factor) + 1, or 1");
  options.option("factors", factors, config::above_to(0, 1e9),
                 "factors: divisor of each frequency, fastest first");
  options.option("short-factors", short_factors, config::above_to(0, 1e9),
                 "factors: divisors for texts up to original-context; not given: as factors");
  options.option("learned", learned, "factors: also train one number per frequency");
}

void TemperatureConfig::declare(config::Options& declared, Origin origin, const char* name) {
  TemperatureGroup group{*this, name};
  declared.section(config::Section::kTemperature);
  declared.group(name, group);
  const bool same = method == kSameMethod;
  const auto chosen = same ? std::vector<std::string>{} : split_methods(method);
  if (!same) declared.declared(name, method_declarations(method, origin), options);
  for (const auto& entry : method_registry()) {
    if (std::ranges::count(chosen, entry.name) > 0) continue;
    declared.elsewhere(name, entry.options, concat("only with --", name, " ", entry.name));
  }
}

void ModelConfig::declare_model(config::Options& options) {
  ModelGroup model{*this};
  options.group("model", model);
}

void ModelConfig::declare(config::Options& options) {
  declare_model(options);
  temperature.declare(options);
  constexpr const char* kCross = "cross-temperature";
  if (kind == ModelKind::kEncoderDecoder)
    cross_temperature.declare(options, Origin::kScratch, kCross);
  else
    options.elsewhere(kCross, {{.name = "method", .value = std::string(kSameMethod)}},
                      "only with --kind encoder-decoder");
}

LayerShape ModelConfig::layer_shape(int64_t layer, AttentionKind attention) const {
  return {.layers = layer_count(attention),
          .layer = layer,
          .d_model = width,
          .q_heads = heads,
          .kv_heads = kv_head_count(),
          .qk_size = size_of_head(),
          .v_size = size_of_head(),
          .vocabulary = vocabulary,
          .trained_length = context,
          .kind = attention};
}

std::vector<MethodSpec> ModelConfig::method_of_layer(int64_t layer, AttentionKind attention) const {
  const bool own = attention == AttentionKind::kCross && cross_temperature.method != kSameMethod;
  const TemperatureConfig& chosen = own ? cross_temperature : temperature;
  if (!parse_layers(chosen.layers, layer_count(attention))[static_cast<size_t>(layer)])
    return {{"softmax", {}}};
  return method_specs(chosen.method, chosen.options, Origin::kScratch);
}

void ModelConfig::validate_kind() const {
  const bool encodes = kind == ModelKind::kEncoder;
  require(encodes || (head == HeadKind::kTokens && !head_transform && !pooler && token_types == 0),
          "model.head, head-transform, pooler and token-types: only with model.kind = encoder");
  require(kind == ModelKind::kEncoderDecoder || decoder_layers == 0,
          "model.decoder-layers: ", decoder_layers,
          " given; only with model.kind = encoder-decoder, others have model.layers");
  require(!head_transform || head == HeadKind::kTokens,
          "model.head-transform: only with model.head = tokens");
  require(!head_transform || !is_gated(activation),
          "model.head-transform: needs an activation that is not gated, such as gelu");
  require(kind != ModelKind::kEncoderDecoder || !parallel_residual,
          "model.parallel-residual: not with model.kind = encoder-decoder");
  require(kind != ModelKind::kEncoderDecoder || !token_shift,
          "model.token-shift: not with model.kind = encoder-decoder");
  for (const auto attention :
       {AttentionKind::kCausal, AttentionKind::kEncoder, AttentionKind::kCross})
    if (layer_count(attention) > 0) method_of_layer(0, attention);
}

void ModelConfig::validate_rope() const {
  if (position == PositionKind::kRope) {
    require(std::isfinite(rope.base) && rope.base > 0, "model.rope.base: ", rope.base,
            " given, a finite number above 0 expected");
    require(rope.fraction <= 1 && rotary_size() >= 2, "model.rope.fraction: ", rope.fraction,
            " given; at most 1, and at least the 2 of a head's ", size_of_head(),
            " columns that rotate together, expected");
  }
  require(rope.original_context > 0 ||
              (rope.scaling != RopeScaling::kYarn && rope.scaling != RopeScaling::kLlama3 &&
               rope.short_factors.empty()),
          "model.rope.original-context: 0 given; yarn, llama3 and short-factors need the length "
          "that the model was trained at before");
  require(rope.scaling != RopeScaling::kLlama3 || rope.low_factor < rope.high_factor,
          "model.rope.low-factor: ", rope.low_factor, " given, a number below high-factor (",
          rope.high_factor, ") expected");
  const bool own = rope.scaling == RopeScaling::kFactors;
  require(own || (rope.factors.empty() && rope.short_factors.empty()),
          "model.rope.factors: only with model.rope.scaling = factors");
  require(!rope.learned || (own && rope.short_factors.empty()),
          "model.rope.learned: only with model.rope.scaling = factors, without short-factors");
  require(!rope.learned || kind != ModelKind::kEncoderDecoder,
          "model.rope.learned: not with model.kind = encoder-decoder, whose halves would differ");
  if (!own) return;
  const auto check = [&](const std::vector<double>& factors, const char* name) {
    require(static_cast<int64_t>(factors.size()) == rotary_size() / 2, "model.rope.", name, ": ",
            factors.size(), " numbers given, ", rotary_size() / 2,
            " expected: one for each pair of a head's ", rotary_size(), " rotating columns");
    for (const double factor : factors)
      require(std::isfinite(factor) && factor > 0, "model.rope.", name, ": ", factor,
              " given, a finite number above 0 expected");
  };
  check(rope.factors, "factors");
  if (!rope.short_factors.empty()) check(rope.short_factors, "short-factors");
}

void ModelConfig::validate() const {
  require(vocabulary > 0, "model.vocabulary: 0 given; the number of token ids expected");
  require(layers > 0 && width > 0 && heads > 0 && context > 0, "model: ", layers, " layers, width ",
          width, ", ", heads, " heads and context ", context, " given; all must be above 0");
  require(head_size > 0 || width % heads == 0, "model.heads: ", heads,
          " given, which does not divide the width ", width,
          "; change one of them or set model.head-size");
  const int64_t size = size_of_head();
  require(size % 8 == 0 && size >= 8 && size <= 256, "model.head-size: a head has ", size,
          " columns (width ", width, ", ", heads,
          " heads); a multiple of 8 up to 256 expected: change heads, width or head-size");
  require(heads % kv_head_count() == 0, "model.kv-heads: ", kv_head_count(),
          " given, which does not divide the ", heads, " heads");
  require(std::isfinite(norm_eps) && norm_eps >= 0, "model.norm-eps: ", norm_eps,
          " given, a finite number of at least 0 expected");
  const bool tied = tied_embeddings && head == HeadKind::kTokens;
  require(!tied || output_count() == vocabulary, "model.tied-embeddings: ", output_count(),
          " outputs given and a vocabulary of ", vocabulary,
          "; a tied matrix needs both the same: set model.tied-embeddings = false");
  require(!parallel_residual || norm_placement == NormPlacement::kPre,
          "model.parallel-residual: only with model.norm-placement = pre");
  validate_rope();
  parse_layers(window_layers, std::max(layers, decoder_layers));
  for (const double p : {dropout_embedding, dropout_residual, dropout_attention})
    require(p >= 0 && p < 1, "model.dropout: ", p, " given, a share from 0 to below 1 expected");
  validate_kind();
}

ModelConfig phonebook_model() {
  ModelConfig config;
  config.vocabulary = 16 + 2048;
  config.outputs = 16;
  config.layers = 1;
  config.width = 64;
  config.heads = 4;
  config.mlp_size = 128;
  config.context = 96;
  config.qk_norm = QkNorm::kPlain;
  config.position = PositionKind::kNone;
  config.activation = Activation::kGelu;
  config.mlp_bias = true;
  config.tied_embeddings = false;
  config.token_shift = true;
  config.init = InitKind::kFanIn;
  return config;
}

}  // namespace tempera::nn
