#include "tempera/families/bert.h"

#include "tempera/base/error.h"
#include "tempera/families/common_fields.h"

namespace tempera::families {
namespace {

using nn::HeadKind;
using nn::ModelConfig;

void bert_shape(ModelConfig& c) {
  c.kind = nn::ModelKind::kEncoder;
  c.norm = nn::NormKind::kLayer;
  c.norm_placement = nn::NormPlacement::kPost;
  c.embedding_norm = true;
  c.position = nn::PositionKind::kLearned;
  c.activation = nn::Activation::kGelu;
  c.attention_bias = nn::AttentionBias::kAll;
  c.mlp_bias = true;
  c.head = HeadKind::kNone;
}

// The class of the model says what stands behind the blocks.
struct Head {
  const char* architecture;
  HeadKind head;
  bool transform;
  bool pooler;
};

constexpr Head kHeads[] = {{"BertModel", HeadKind::kNone, false, true},
                           {"BertForMaskedLM", HeadKind::kTokens, true, false},
                           {"BertForPreTraining", HeadKind::kTokens, true, false},
                           {"BertForSequenceClassification", HeadKind::kSequence, false, true}};

int64_t label_count(Fields& f) {
  int64_t count = 2;
  f.integer("num_labels", count, 2);
  if (const auto* names = f.find("id2label"); names && names->is_object() && !names->empty())
    count = static_cast<int64_t>(names->size());
  constexpr int64_t kMost = 100'000;
  TEMPERA_CHECK(count > 0 && count <= kMost, f.where(), ": num_labels: ", count, " given, 1 to ",
                kMost, " expected");
  return count;
}

void read_head(Fields& f, ModelConfig& c) {
  std::string name = kHeads[0].architecture;
  if (const auto* list = f.find("architectures"); list && list->is_array() && !list->empty()) {
    TEMPERA_CHECK(list->front().is_string(), f.where(), ": architectures: names expected");
    name = list->front().get<std::string>();
  }
  std::string known;
  for (const Head& head : kHeads) {
    known += (known.empty() ? "" : ", ") + std::string(head.architecture);
    if (name != head.architecture) continue;
    c.head = head.head;
    c.head_transform = head.transform;
    c.pooler = head.pooler;
    if (c.head == HeadKind::kSequence) c.outputs = label_count(f);
    return;
  }
  throw Error(concat(f.where(), ": architectures: '", name, "' is not supported; known: ", known));
}

void write_head(Fields& f, const ModelConfig& c) {
  for (const Head& head : kHeads) {
    if (c.head != head.head) continue;
    f.set("architectures", nlohmann::json::array({head.architecture}));
    break;
  }
  if (c.head != HeadKind::kSequence) return;
  // The number of classes is the number of their names.
  auto names = nlohmann::json::object();
  auto numbers = nlohmann::json::object();
  for (int64_t label = 0; label < c.output_count(); ++label) {
    const std::string name = "LABEL_" + std::to_string(label);
    names[std::to_string(label)] = name;
    numbers[name] = label;
  }
  f.set("id2label", std::move(names));
  f.set("label2id", std::move(numbers));
}

void bert_fields(Fields& f, ModelConfig& c) {
  named_sizes(f, c);
  f.integer("type_vocab_size", c.token_types, 2);
  f.choice("hidden_act", c.activation, "gelu", plain_activations());
  f.number("layer_norm_eps", c.norm_eps, 1e-12);
  f.number("hidden_dropout_prob", c.dropout_residual, 0.1);
  c.dropout_embedding = c.dropout_residual;
  f.number("attention_probs_dropout_prob", c.dropout_attention, 0.1);
  f.flag("tie_word_embeddings", c.tied_embeddings, true);
  f.fixed("position_embedding_type", "absolute");
  f.fixed("is_decoder", false);
  f.fixed("add_cross_attention", false);
  // Of an older pooler, which was never configured otherwise.
  f.ignore({"gradient_checkpointing", "directionality", "pooler_fc_size",
            "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
            "pooler_type"});
  if (f.reading())
    read_head(f, c);
  else
    write_head(f, c);
}

std::vector<Rule> bert_rules(const ModelConfig& c) {
  const std::string embeddings = "bert.embeddings.";
  const std::string layer = "bert.encoder.layer.{}.";
  std::vector<Rule> rules = {
      {"embedding.weight", {{embeddings + "word_embeddings.weight"}}},
      {"positions.weight", {{embeddings + "position_embeddings.weight"}}},
      {"token_types.weight", {{embeddings + "token_type_embeddings.weight"}}},
      {"head.weight", {{"cls.predictions.decoder.weight"}}},
      // An output matrix of its own has its own bias; the other is then used by nothing.
      {"head_bias",
       {{c.tied_embeddings ? "cls.predictions.bias" : "cls.predictions.decoder.bias"}}}};
  for (const std::string what : {".weight", ".bias"}) {
    const auto add = [&](const std::string& ours, const std::string& theirs) {
      rules.push_back({ours + what, {{theirs + what}}});
    };
    const std::string self = layer + "attention.self.";
    rules.push_back({"layers.{}.attention.qkv" + what,
                     {{self + "query" + what}, {self + "key" + what}, {self + "value" + what}}});
    add("embedding_norm", embeddings + "LayerNorm");
    add("layers.{}.attention.out", layer + "attention.output.dense");
    add("layers.{}.attention_norm", layer + "attention.output.LayerNorm");
    add("layers.{}.mlp.in", layer + "intermediate.dense");
    add("layers.{}.mlp.out", layer + "output.dense");
    add("layers.{}.mlp_norm", layer + "output.LayerNorm");
    add("pooler", "bert.pooler.dense");
    add("head_transform", "cls.predictions.transform.dense");
    add("head_norm", "cls.predictions.transform.LayerNorm");
    add("classifier", "classifier");
  }
  return rules;
}

}  // namespace

std::vector<Family> bert_families() {
  return {{.name = "bert",
           .architecture = "BertModel",
           .gguf = "",
           .shape = bert_shape,
           .fields = bert_fields,
           .rules = bert_rules,
           .prefix = "bert.",
           .unused = {"pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight",
                      "cls.seq_relationship.bias", "cls.predictions.decoder.bias",
                      "cls.predictions.bias", "embeddings.position_ids"}}};
}

}  // namespace tempera::families
