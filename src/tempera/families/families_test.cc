#include <gtest/gtest.h>

#include <string>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/families/family.h"
#include "tempera/families/gguf.h"

namespace tempera::families {
namespace {

using Json = nlohmann::json;
using nn::ModelConfig;

Json llama_json() {
  return Json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "tie_word_embeddings": true, "bos_token_id": 1})");
}

ModelConfig read(const Json& json) {
  return read_config(find_family(json.at("model_type").get<std::string>(), "x"), json, "x");
}

std::string refusal(const Json& json) {
  try {
    read(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Families, ReadTheirFields) {
  const ModelConfig config = read(llama_json());
  EXPECT_EQ(config.vocabulary, 96);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.size_of_head(), 16);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.rope.base, 10000);
}

TEST(Families, ReadOldAndNewRope) {
  auto json = llama_json();
  json["rope_theta"] = 5000;
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  const ModelConfig old = read(json);
  EXPECT_EQ(old.rope.base, 5000);
  EXPECT_EQ(old.rope.scaling, nn::RopeScaling::kLinear);
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", 5000}, {"rope_type", "linear"}, {"factor", 4}};
  EXPECT_EQ(read(json), old);
}

TEST(Families, RefuseWhatTheyDoNotKnowByName) {
  const auto with = [](const char* key, const Json& value) {
    auto json = llama_json();
    json[key] = value;
    return refusal(json);
  };
  EXPECT_NE(with("attention_sinks", 4).find("attention_sinks"), std::string::npos);
  EXPECT_NE(with("quantization_config", {{"bits", 4}}).find("quantization_config"),
            std::string::npos);
  EXPECT_NE(with("hidden_act", "relu").find("\"silu\""), std::string::npos);
  EXPECT_NE(with("rope_scaling", {{"rope_type", "su"}}).find("\"su\""), std::string::npos);
  EXPECT_NE(
      with("rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"twist", 1}}).find("twist"),
      std::string::npos);
  EXPECT_NE(with("hidden_size", "many").find("whole number"), std::string::npos);
  for (const Json& size : {Json(0x80000001), Json(-0x80000001LL), Json(1e18), Json(~0ULL)})
    EXPECT_NE(with("hidden_size", size).find("at most 2^31"), std::string::npos) << size;
  EXPECT_NE(with("model_type", "lama").find("did you mean 'llama'"), std::string::npos);
  EXPECT_EQ(with("some_switch", false), "");
  EXPECT_EQ(with("some_option", nullptr), "");
  auto lacking = llama_json();
  lacking.erase("hidden_size");
  EXPECT_NE(refusal(lacking).find("hidden_size is missing"), std::string::npos);
}

// Writing a configuration and reading it back is how a family is found for a model.
TEST(Families, GiveBackWhatTheyWrite) {
  for (const Family& family : all_families()) {
    ModelConfig config;
    family.shape(config);
    config.vocabulary = 96;
    const bool grouped = !family.name.starts_with("gpt") && config.kind == nn::ModelKind::kDecoder;
    config.kv_heads = grouped ? 2 : 0;
    config.mlp_size = 96;
    if (family.name == "gpt2") config.activation = nn::Activation::kGeluTanh;
    if (family.name == "gpt_neox") config.activation = nn::Activation::kGelu;
    if (family.name == "gemma2") config.embedding_scale = std::sqrt(384.0);
    const Json json = write_config(family, config);
    ModelConfig back = read_config(family, json, "x");
    EXPECT_EQ(write_config(family, back), json) << family.name;
    const Family* found = family_of(config);
    ASSERT_NE(found, nullptr) << family.name;
    // Others may have words for it too; what they have must be the same model.
    EXPECT_EQ(write_config(*found, back), write_config(*found, config)) << family.name;
  }
}

TEST(Families, ThereIsNoneForAModelThatNoneHas) {
  ModelConfig config;
  config.vocabulary = 96;
  config.token_shift = true;
  EXPECT_EQ(family_of(config), nullptr);
}

Json bert_json(const char* architecture) {
  return Json::parse(R"({"model_type": "bert", "vocab_size": 96, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "max_position_embeddings": 32, "architectures": [")" +
                     std::string(architecture) + R"("]})");
}

TEST(Families, BertHasTheHeadOfItsClass) {
  const ModelConfig plain = read(bert_json("BertModel"));
  EXPECT_EQ(plain.kind, nn::ModelKind::kEncoder);
  EXPECT_EQ(plain.head, nn::HeadKind::kNone);
  EXPECT_TRUE(plain.pooler);
  EXPECT_EQ(plain.token_types, 2);
  const ModelConfig masked = read(bert_json("BertForMaskedLM"));
  EXPECT_EQ(masked.head, nn::HeadKind::kTokens);
  EXPECT_TRUE(masked.head_transform);
  EXPECT_FALSE(masked.pooler);
  auto classes = bert_json("BertForSequenceClassification");
  classes["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  const ModelConfig three = read(classes);
  EXPECT_EQ(three.head, nn::HeadKind::kSequence);
  EXPECT_EQ(three.output_count(), 3);
  const auto& bert = find_family("bert", "");
  EXPECT_EQ(read_config(bert, write_config(bert, three), "x"), three);
  EXPECT_NE(refusal(bert_json("BertForQuestionAnswering")).find("BertForMaskedLM"),
            std::string::npos);
  auto relative = bert_json("BertModel");
  relative["position_embedding_type"] = "relative_key";
  EXPECT_NE(refusal(relative).find("absolute"), std::string::npos);
}

TEST(Families, T5SaysHowItsScoresAreScaled) {
  auto json = Json::parse(R"({"model_type": "t5", "vocab_size": 96, "d_model": 64, "d_kv": 16,
    "d_ff": 96, "num_layers": 2, "num_heads": 4})");
  const ModelConfig old = read(json);
  EXPECT_EQ(old.kind, nn::ModelKind::kEncoderDecoder);
  EXPECT_EQ(old.decoder_layers, 2);
  EXPECT_EQ(old.attention_scale, 1);
  EXPECT_EQ(old.logit_scale, 0.125);
  EXPECT_TRUE(old.tied_embeddings);
  json["tie_word_embeddings"] = false;
  json["feed_forward_proj"] = "gated-gelu";
  const ModelConfig newer = read(json);
  EXPECT_EQ(newer.logit_scale, 1);
  EXPECT_FALSE(newer.tied_embeddings);
  EXPECT_EQ(newer.activation, nn::Activation::kGegluTanh);
  json["tie_word_embeddings"] = true;
  json["scale_decoder_outputs"] = false;
  EXPECT_EQ(read(json).logit_scale, 1);
  json["relative_attention_num_buckets"] = 16;
  EXPECT_NE(refusal(json).find("relative_attention_num_buckets"), std::string::npos);
}

TEST(Families, SizesThatFollowFromTheRestAreWritten) {
  ModelConfig config;
  config.vocabulary = 96;
  const auto json = write_config(find_family("llama", "x"), config);
  EXPECT_EQ(json.at("num_key_value_heads"), config.heads);
  EXPECT_EQ(json.at("intermediate_size"), config.size_of_mlp());
  EXPECT_GT(config.size_of_mlp(), 0);
}

// As transformers does; null switches off, and is written for what is off.
TEST(Families, AbsentFieldsHaveTheFamilysOwnNumbers) {
  auto json = llama_json();
  json.erase("num_key_value_heads");
  json["num_attention_heads"] = 32;
  EXPECT_EQ(read(json).kv_heads, 32);
  for (const auto& [name, heads] : {std::pair{"mistral", 8}, {"qwen2", 32}, {"gemma2", 4}}) {
    auto other = json;
    other["model_type"] = name;
    other.erase("hidden_act");
    EXPECT_EQ(read(other).kv_heads, heads) << name;
    other["num_key_value_heads"] = nullptr;
    EXPECT_EQ(read(other).kv_heads, 32) << name;
  }
  json["model_type"] = "mistral";
  EXPECT_EQ(read(json).attention_window(0), 4096);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(read(json).window, 0);
  json["model_type"] = "gemma2";
  json.erase("hidden_act");
  json.erase("sliding_window");
  const ModelConfig gemma = read(json);
  EXPECT_EQ(gemma.attention_window(2), 4096);
  EXPECT_EQ(gemma.attention_cap, 50);
  EXPECT_EQ(gemma.logit_cap, 30);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"})
    json[key] = nullptr;
  const ModelConfig plain = read(json);
  EXPECT_EQ(plain.window, 0);
  EXPECT_EQ(plain.attention_cap, 0);
  EXPECT_EQ(plain.logit_cap, 0);
  const Json written = write_config(find_family("gemma2", ""), plain);
  EXPECT_TRUE(written.at("attn_logit_softcapping").is_null());
  EXPECT_TRUE(written.at("final_logit_softcapping").is_null());
}

// The format names no activation, and readers of gpt2 take the tanh form of GELU.
TEST(Families, GgufRefusesWhatItsReadersWouldNotRun) {
  ModelConfig config;
  const Family& gpt2 = find_family("gpt2", "");
  gpt2.shape(config);
  config.vocabulary = 96;
  const auto refused = [&](const Family& family) {
    try {
      gguf_metadata(family, config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  config.activation = nn::Activation::kGeluTanh;
  EXPECT_EQ(refused(gpt2), "");
  config.activation = nn::Activation::kGelu;
  EXPECT_NE(refused(gpt2).find("'gelu'"), std::string::npos);
  config.activation = nn::Activation::kRelu;
  EXPECT_NE(refused(gpt2).find("readers take 'gelu_new'"), std::string::npos);
  const Family& llama = find_family("llama", "");
  config = read(llama_json());
  EXPECT_EQ(refused(llama), "");
  config.attention_scale = 0.5;
  EXPECT_NE(refused(llama).find("another one"), std::string::npos);
  auto json = llama_json();
  json["model_type"] = "gemma2";
  json.erase("hidden_act");
  json["head_dim"] = 256;
  const Family& gemma2 = find_family("gemma2", "");
  config = read(json);
  EXPECT_EQ(refused(gemma2), "");
  config.logit_cap = 0;
  EXPECT_NE(refused(gemma2).find("soft caps"), std::string::npos);
}

// A GGUF file with the keys of a model of 2 blocks, 4 heads and width 64, and its table.
class GgufFile : public testing::Test {
 protected:
  void SetUp() override {
    set("context_length", 64);
    set("embedding_length", 64);
    set("block_count", 2);
    set("attention.head_count", 4);
    set("feed_forward_length", 96);
    set("attention.layer_norm_rms_epsilon", 1e-6F);
  }
  template <class T>
  void set(const std::string& key, T value) {
    if constexpr (std::is_integral_v<T>)
      keys_[key] = static_cast<uint32_t>(value);
    else
      keys_[key] = value;
  }
  ModelConfig config(const std::string& architecture) const {
    io::GgufMetadata metadata;
    metadata.add("general.architecture", architecture);
    for (const auto& [key, value] : keys_) metadata.add(architecture + "." + key, value);
    const std::vector<std::byte> bytes(96 * 64 * sizeof(float));
    const std::vector<io::GgufTensor> tensors = {
        {.name = "token_embd.weight", .shape = {96, 64}, .bytes = bytes}};
    const auto path = folder_.path() / "model.gguf";
    io::write_gguf(path, metadata, tensors);
    return gguf_config(io::Gguf(path), "x");
  }
  std::string refusal(const std::string& architecture) const {
    return message_of([&] { config(architecture); });
  }

 private:
  const TempFolder folder_;
  std::map<std::string, io::GgufValue> keys_;
};

TEST_F(GgufFile, ColumnsThatDoNotRotateHaveAPlaceInSomeArchitecturesAlone) {
  EXPECT_EQ(config("llama").rotary_size(), 16);
  set("rope.dimension_count", 16);
  EXPECT_EQ(config("llama").rotary_size(), 16);
  set("rope.dimension_count", 8);
  EXPECT_EQ(config("qwen2").rotary_size(), 8);
  for (const char* architecture : {"llama", "granite"}) {
    const std::string text = refusal(architecture);
    EXPECT_TRUE(says(text, "rope.dimension_count: 8 given")) << text;
    EXPECT_TRUE(says(text, concat("'", architecture, "' all 16 columns"))) << text;
  }
  for (const int columns : {0, 3, 15, 17, 18}) {
    set("rope.dimension_count", columns);
    for (const char* architecture : {"llama", "qwen2"})
      EXPECT_TRUE(says(refusal(architecture), concat("rope.dimension_count: ", columns, " given")));
  }
  // 30 / 88 is rounded down.
  set("attention.key_length", 88);
  set("attention.value_length", 88);
  set("rope.dimension_count", 30);
  EXPECT_EQ(config("qwen2").rotary_size(), 30);
}

TEST(Families, GgufRefusesAPartThatRotatesWhereReadersTurnNeighbours) {
  ModelConfig config = read(llama_json());
  config.rope.fraction = 0.5;
  for (const char* name : {"llama", "mistral", "granite"})
    EXPECT_TRUE(says(message_of([&] { gguf_metadata(find_family(name, ""), config); }),
                     "8 of a head's 16 columns rotate"))
        << name;
}

TEST(Families, WindowsByLayer) {
  auto json = llama_json();
  json["model_type"] = "gemma2";
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json.erase("hidden_act");
  json["head_dim"] = 16;
  json["sliding_window"] = 8;
  const ModelConfig config = read(json);
  EXPECT_EQ(config.attention_window(0), 8);
  EXPECT_EQ(config.attention_window(1), std::nullopt);
  EXPECT_EQ(config.attention_window(2), 8);
}

}  // namespace
}  // namespace tempera::families
