#include "tempera/families/gguf.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/families/common_fields.h"
#include "tempera/families/rope_factors.h"
#include "tempera/io/gguf_blocks.h"

namespace tempera::families {
namespace {

using Json = nlohmann::json;
using nn::AttentionBias;
using nn::ModelConfig;
using nn::RopeScaling;

bool is_joint(const Family& family) { return family.name == "gpt2" || family.name == "gpt_neox"; }

// llama.cpp turns neighbouring columns in these and has their matrices in that order.
bool turns_neighbours(const Family& family) {
  return family.name == "llama" || family.name == "mistral" || family.name == "granite";
}

// The architectures in which llama.cpp reads rope_freqs.weight.
bool takes_rope_factors(const Family& family) {
  return family.gguf == "llama" || family.gguf == "granite";
}

void read_rope_tensor(const io::GgufTensor& tensor, ModelConfig& config, const std::string& where) {
  const std::vector<int64_t> shape = {config.rotary_size() / 2};
  TEMPERA_CHECK(tensor.shape == shape, where, ": ", kRopeFactors, ": shape ",
                io::shape_text(tensor.shape), " given, ", io::shape_text(shape), " expected");
  std::vector<float> factors(static_cast<size_t>(shape[0]));
  io::dequantize_rows(tensor, 0, 1, factors);
  read_rope_factors(factors, config.rope, where);
}

// Gemma-2 of 27B divides by the width of a head as the others have it, and the file does not say
// so.
constexpr int64_t kGemmaLayers27B = 46;

Json to_json(const io::GgufValue& value) {
  return std::visit(
      [](const auto& plain) -> Json {
        using T = std::decay_t<decltype(plain)>;
        if constexpr (std::is_same_v<T, io::GgufArray>) {
          return Json::array({"a list"});  // none of the fields below is one
        } else {
          return plain;
        }
      },
      value);
}

// The keys that belong to the architecture, without its name in front.
Json own_keys(const io::GgufMetadata& metadata, const std::string& architecture) {
  Json json = Json::object();
  const std::string prefix = architecture + ".";
  for (const auto& [key, value] : metadata.entries())
    if (key.starts_with(prefix)) json[key.substr(prefix.size())] = to_json(value);
  return json;
}

// The columns of a head that rotate.
void rotary_key(const Family& family, Fields& f, ModelConfig& c) {
  int64_t columns = c.rotary_size();
  const int64_t size = c.size_of_head();
  f.integer("rope.dimension_count", columns, size);
  if (!f.reading()) return;
  const char* key = ": rope.dimension_count: ";
  TEMPERA_CHECK(columns >= 2 && columns <= size && columns % 2 == 0, f.where(), key, columns,
                " given, an even number from 2 to ", size, " expected");
  // Columns that turn together would lie elsewhere than in a head that rotates as a whole.
  TEMPERA_CHECK(columns == size || !turns_neighbours(family), f.where(), key, columns,
                " given; in the architecture '", family.gguf, "' all ", size,
                " columns of a head rotate");
  c.rope.fraction = static_cast<double>(columns) / static_cast<double>(size);
  // Where the quotient was rounded down, so would be the columns.
  if (c.rotary_size() < columns) c.rope.fraction = std::nextafter(c.rope.fraction, 1.0);
}

void rope_keys(const Family& family, Fields& f, ModelConfig& c) {
  nn::RopeConfig& rope = c.rope;
  f.number("rope.freq_base", rope.base, 10000);
  rotary_key(family, f, c);
  if (!f.reading() && (rope.scaling == RopeScaling::kNone || is_a_rope_tensor(rope.scaling)))
    return;
  f.choice("rope.scaling.type", rope.scaling, "none",
           {{"none", RopeScaling::kNone},
            {"linear", RopeScaling::kLinear},
            {"yarn", RopeScaling::kYarn}});
  f.ignore({"rope.scaling.finetuned"});
  if (rope.scaling == RopeScaling::kNone) return f.ignore({"rope.scaling.factor"});
  f.number("rope.scaling.factor", rope.factor);
  if (rope.scaling == RopeScaling::kYarn)
    f.integer("rope.scaling.original_context_length", rope.original_context);
}

void scale_keys(Fields& f, ModelConfig& c) {
  f.number("embedding_scale", c.embedding_scale, 1);
  f.number("residual_scale", c.residual_scale, 1);
  f.number("attention.scale", c.attention_scale, 0);
  double divisor = 1 / c.logit_scale;
  f.number("logit_scale", divisor, 1);
  TEMPERA_CHECK(divisor != 0, f.where(), ": logit_scale: 0 given, another number expected");
  c.logit_scale = 1 / divisor;
}

void gemma2_keys(Fields& f, ModelConfig& c) {
  TEMPERA_CHECK(f.reading() || (c.attention_cap > 0 && c.logit_cap > 0),
                "GGUF has no words for a Gemma-2 without its soft caps; export a Hugging Face "
                "folder");
  f.number("attn_logit_softcapping", c.attention_cap, kGemmaAttentionCap);
  f.number("final_logit_softcapping", c.logit_cap, kGemmaLogitCap);
  f.integer("attention.sliding_window", c.window, 4096);
  if (!f.reading()) return;
  std::vector<bool> sliding(static_cast<size_t>(c.layers));
  for (size_t layer = 0; layer < sliding.size(); layer += 2) sliding[layer] = true;
  c.window_layers = layer_list(sliding);
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
  c.attention_scale =
      c.layers == kGemmaLayers27B
          ? 1 / std::sqrt(static_cast<double>(c.width) / static_cast<double>(c.heads))
          : 0;
}

void gguf_fields(const Family& family, Fields& f, ModelConfig& c) {
  f.integer("vocab_size", c.vocabulary, c.vocabulary);
  f.integer("context_length", c.context);
  f.integer("embedding_length", c.width);
  f.integer("block_count", c.layers);
  f.integer("attention.head_count", c.heads);
  TEMPERA_CHECK(c.heads > 0 && c.width > 0 && c.layers > 0 && c.layers <= 10000, f.where(),
                ": a model of ", c.layers, " blocks, ", c.heads, " heads and width ", c.width);
  f.integer("attention.head_count_kv", c.kv_heads, c.heads);
  f.integer("feed_forward_length", c.mlp_size);
  int64_t size = c.size_of_head();
  f.integer("attention.key_length", size, c.width / c.heads);
  int64_t value_size = size;
  f.integer("attention.value_length", value_size, size);
  TEMPERA_CHECK(value_size == size, f.where(), ": attention.value_length ", value_size,
                " differs from attention.key_length ", size, ", which no known family has");
  c.head_size = size * c.heads == c.width ? 0 : size;
  const bool rms = c.norm == nn::NormKind::kRms;
  f.number(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", c.norm_eps);
  if (c.position == nn::PositionKind::kRope) rope_keys(family, f, c);
  if (family.name == "gpt_neox") f.flag("use_parallel_residual", c.parallel_residual, true);
  if (family.name == "granite") scale_keys(f, c);
  if (family.name == "gemma2") gemma2_keys(f, c);
  f.ignore({"tensor_data_layout", "vocab_size"});
}

// The shape that all files of an architecture have. The format names no activation: readers take
// the one that the published models of the family have.
ModelConfig gguf_shape(const Family& family) {
  ModelConfig config;
  family.shape(config);
  if (family.name == "gpt2") config.activation = nn::Activation::kGeluTanh;
  if (family.name == "gpt_neox") config.activation = nn::Activation::kGelu;
  return config;
}

// As transformers calls it.
std::string activation_name(nn::Activation activation) {
  for (const auto& [name, known] : plain_activations())
    if (known == activation) return name;
  return "a gated one";
}

// Throws where a reader of the keys would run another model.
void check_read_back(const Family& family, const ModelConfig& config, const Json& keys) {
  ModelConfig back = gguf_shape(family);
  TEMPERA_CHECK(back.activation == config.activation, "GGUF has no words for the activation '",
                activation_name(config.activation), "' of a model of the family ", family.name,
                ": its readers take '", activation_name(back.activation),
                "'; export a Hugging Face folder");
  auto fields = Fields::reader(keys, "GGUF");
  gguf_fields(family, fields, back);
  // What the tensors say.
  back.vocabulary = config.vocabulary;
  back.outputs = config.outputs;
  back.tied_embeddings = config.tied_embeddings;
  back.attention_bias = config.attention_bias;
  back.mlp_bias = config.mlp_bias;
  if (is_a_rope_tensor(config.rope.scaling)) back.rope = config.rope;
  TEMPERA_CHECK(same_model(back, config), "GGUF has no words for a part of this model (scales of ",
                "attention, layers with a window, or details of a RoPE scaling): its readers would "
                "run another one; export a Hugging Face folder");
}

io::GgufValue to_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return static_cast<uint32_t>(value.get<int64_t>());
  return static_cast<float>(value.get<double>());
}

}  // namespace

const Family& gguf_family(const io::Gguf& file, const std::string& where) {
  const std::string name = file.metadata().get<std::string>("general.architecture");
  std::string known;
  for (const Family& family : all_families()) {
    if (family.gguf.empty()) continue;  // the format is not read or written for it
    if (family.gguf == name) return family;
    if (known.find(family.gguf) == std::string::npos)
      known += (known.empty() ? "" : ", ") + std::string(family.gguf);
  }
  throw Error(concat(where, ": the architecture '", name, "' is not supported; known: ", known));
}

ModelConfig gguf_config(const io::Gguf& file, const std::string& where) {
  const Family& family = gguf_family(file, where);
  ModelConfig config = gguf_shape(family);
  const auto has = [&](const char* name) { return file.find(name) != nullptr; };
  const auto* factors = file.find(kRopeFactors);
  TEMPERA_CHECK(!factors || takes_rope_factors(family), where, ": ", kRopeFactors,
                ": factors of single rotary frequencies are not known in the architecture '",
                family.gguf, "'; use the model's Hugging Face folder");
  const auto* table = file.find("token_embd.weight");
  TEMPERA_CHECK(table && table->shape.size() == 2, where, ": no matrix token_embd.weight");
  config.vocabulary = table->shape[0];
  auto fields = Fields::reader(own_keys(file.metadata(), std::string(family.gguf)), where);
  gguf_fields(family, fields, config);
  fields.finish();
  config.vocabulary = table->shape[0];
  if (factors) read_rope_tensor(*factors, config, where);
  config.tied_embeddings = !has("output.weight");
  const bool inputs = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  config.attention_bias = !inputs                         ? AttentionBias::kNone
                          : has("blk.0.attn_output.bias") ? AttentionBias::kAll
                                                          : AttentionBias::kInputs;
  config.mlp_bias = has("blk.0.ffn_up.bias");
  return config;
}

io::GgufMetadata gguf_metadata(const Family& family, const ModelConfig& config) {
  TEMPERA_CHECK(config.rope.scaling == RopeScaling::kNone ||
                    config.rope.scaling == RopeScaling::kLinear ||
                    config.rope.scaling == RopeScaling::kYarn ||
                    (is_a_rope_tensor(config.rope.scaling) && takes_rope_factors(family) &&
                     config.rope.short_factors.empty()),
                "GGUF has no words for this model's RoPE scaling; export a Hugging Face folder");
  TEMPERA_CHECK(config.window == 0 || family.name == "gemma2",
                "GGUF has no words for the attention window of this family; export a Hugging Face "
                "folder");
  TEMPERA_CHECK(!turns_neighbours(family) || config.rotary_size() == config.size_of_head(),
                "GGUF has no words for a ", family.name, " in which ", config.rotary_size(),
                " of a head's ", config.size_of_head(),
                " columns rotate; export a Hugging Face folder");
  ModelConfig copy = config;
  auto fields = Fields::writer();
  gguf_fields(family, fields, copy);
  check_read_back(family, config, fields.json());
  io::GgufMetadata metadata;
  metadata.add("general.architecture", std::string(family.gguf));
  for (const auto& [key, value] : fields.json().items())
    metadata.add(std::string(family.gguf) + "." + key, to_value(value));
  return metadata;
}

std::vector<Rule> gguf_rules(const Family& family) {
  const std::string block = "blk.{}.";
  const bool joint = is_joint(family);
  const bool gated = !joint;
  const Layout turned = turns_neighbours(family) ? Layout::kRotaryPairs : Layout::kSame;
  // Norms of what is added stand under other names than those in front.
  const bool output_norm = family.name == "olmo2";
  std::vector<Rule> rules = {{"embedding.weight", {{"token_embd.weight"}}},
                             {"positions.weight", {{"position_embd.weight"}}},
                             {"head.weight", {{"output.weight"}}},
                             {"layers.{}.attention.q_norm", {{block + "attn_q_norm.weight"}}},
                             {"layers.{}.attention.k_norm", {{block + "attn_k_norm.weight"}}}};
  for (const std::string what : {"weight", "bias"}) {
    const auto add = [&](const std::string& ours, const std::string& theirs) {
      rules.push_back({"layers.{}." + ours + "." + what, {{block + theirs + "." + what}}});
    };
    if (joint) {
      add("attention.qkv", "attn_qkv");
    } else {
      rules.push_back({"layers.{}.attention.qkv." + what,
                       {{block + "attn_q." + what, turned},
                        {block + "attn_k." + what, turned},
                        {block + "attn_v." + what}}});
    }
    add("attention.out", "attn_output");
    if (gated) {
      rules.push_back(
          {"layers.{}.mlp.in." + what, {{block + "ffn_gate." + what}, {block + "ffn_up." + what}}});
    } else {
      add("mlp.in", "ffn_up");
    }
    add("mlp.out", "ffn_down");
    add("attention_norm", output_norm ? "post_attention_norm" : "attn_norm");
    add("mlp_norm", output_norm ? "post_ffw_norm" : "ffn_norm");
    add("attention_output_norm", "post_attention_norm");
    add("mlp_output_norm", "post_ffw_norm");
    rules.push_back({"norm." + what, {{"output_norm." + what}}});
  }
  return rules;
}

}  // namespace tempera::families
