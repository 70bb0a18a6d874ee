#include "tempera/models/load.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/io/gguf.h"
#include "tempera/models/export.h"
#include "tempera/models/testing_models.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/blocks.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;

class LoadTest : public testing::Test {
 protected:
  // What loading complains of once `part` of the model's config.json reads otherwise.
  std::string complaint_with(const std::string& part, const std::string& other) const {
    std::string text = read_file(folder_ / "config.json", kMostConfig);
    const size_t place = text.find(part);
    EXPECT_NE(place, std::string::npos) << part;
    write_file(folder_ / "config.json", text.replace(place, part.size(), other));
    return complaint();
  }
  std::string complaint() const {
    return message_of([&] { load_model(folder_); });
  }

  const TempFolder parent_;
  const std::shared_ptr<nn::Model> model_ = nn::moved_model(nn::with_method(byte_config(), "ssa"));
  const fs::path folder_ = write_model(parent_.path() / "model", *model_);
};

TEST_F(LoadTest, OurOwnFormatComesBackWithItsTemperature) {
  const auto loaded = load_model(folder_);
  EXPECT_EQ(logit_difference(*loaded.model, *model_), 0);
  EXPECT_EQ(loaded.family, "tempera");
  EXPECT_FALSE(loaded.model->is_training());
  const auto tokenizer = tokenizer_of(loaded);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->vocabulary(), text::ByteTokenizer::kVocabulary);
}

TEST_F(LoadTest, ATemperatureInPlaceOfItsOwnStartsAsPlainAttention) {
  const auto loaded = load_model(folder_, {.temperature = nn::TemperatureConfig{.method = "head"}});
  EXPECT_EQ(loaded.model->config().temperature.method, "head");
  const auto plain =
      load_model(folder_, {.temperature = nn::TemperatureConfig{.method = "softmax"}});
  EXPECT_EQ(logit_difference(*loaded.model, *plain.model), 0);
  EXPECT_GT(logit_difference(*loaded.model, *model_), 0);
}

TEST_F(LoadTest, RoundedWeightsAreThoseOfTheType) {
  const auto loaded = load_model(folder_, {.dtype = torch::kBFloat16});
  EXPECT_EQ(loaded.model->output_weight().scalar_type(), torch::kBFloat16);
  const double difference = logit_difference(*loaded.model, *model_);
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.5);
}

TEST_F(LoadTest, MatricesOfAGgufFileStayInItsBlocks) {
  const auto plain = nn::moved_model(byte_config());
  for (const auto type : {io::GgmlType::kQ8_0, io::GgmlType::kQ4_1}) {
    const fs::path file = parent_.path() / (std::string(io::info_of(type).name) + ".gguf");
    NewOutput out(file, NewOutput::Kind::kFile);
    export_gguf({.model = plain, .path = {}, .family = "tempera"}, out, /*folds=*/false, type);
    const auto unpacked = load_model(file);
    const auto loaded = load_model(file, {.blocks = true});
    fs::remove(file);  // it stays mapped
    const auto ssa = with_temperature(*loaded.model, {.method = "ssa"});
    EXPECT_NE(ops::blocks_of(ssa->output_weight()), nullptr);
    EXPECT_EQ(logit_difference(*ssa, *loaded.model), 0);
    EXPECT_EQ(ops::blocks_of(unpacked.model->output_weight()), nullptr);
    EXPECT_NE(ops::blocks_of(loaded.model->output_weight()), nullptr);
    loaded.model->to(torch::Device(torch::kCPU));
    const double difference = logit_difference(*loaded.model, *unpacked.model);
    EXPECT_GT(difference, 0);
    // Of 8-bit rows; rows in a wrong place differ by as much as the logits themselves.
    const auto logits = nn::eval_logits(*unpacked.model, nn::tiny_batch());
    EXPECT_LT(difference, 0.05 * logits.abs().max().item<double>());
    EXPECT_EQ(loaded.model->parameter_count(), unpacked.model->parameter_count());
  }
}

// Memory for them is never asked for.
TEST_F(LoadTest, SizesThatTheWeightsDoNotHaveAreRefused) {
  for (const auto& [key, value] : {std::pair("\"layers\": 2", "\"layers\": 9000"),
                                   {"mlp-size\": 48", "mlp-size\": 10000000"},
                                   {"vocabulary\": ", "vocabulary\": 90000"},
                                   {"rank\": 0", "rank\": 4096"}}) {
    write_model(folder_, *model_);
    const std::string text = complaint_with(key, value);
    EXPECT_TRUE(says(text, "; the weights have")) << value;
    EXPECT_TRUE(says(text, (folder_ / "config.json").string())) << value;
  }
}

TEST_F(LoadTest, SizesThatAGgufFileDoesNotHaveAreRefused) {
  const fs::path file = parent_.path() / "model.gguf", other = parent_.path() / "other.gguf";
  NewOutput out(file, NewOutput::Kind::kFile);
  const auto plain = nn::moved_model(byte_config());
  export_gguf({.model = plain, .path = {}, .family = "tempera"}, out, /*folds=*/false,
              io::GgmlType::kF32);
  const io::Gguf whole(file);
  for (const auto& [key, value] : {std::pair("block_count", 10000U),
                                   {"block_count", 200U},
                                   {"feed_forward_length", 1U << 31},
                                   {"embedding_length", 1U << 24},
                                   {"embedding_length", ~0U},
                                   {"attention.head_count_kv", 1U << 30}}) {
    io::GgufMetadata metadata;
    for (const auto& [name, old] : whole.metadata().entries())
      metadata.add(name, name.ends_with(key) ? io::GgufValue(value) : old);
    io::write_gguf(other, metadata, whole.tensors());
    for (const bool blocks : {false, true})
      EXPECT_TRUE(says(message_of([&] { load_model(other, {.blocks = blocks}); }), other.string()))
          << key << " " << value;
  }
}

TEST_F(LoadTest, AClonePartsFromItsOrigin) {
  const auto clone = clone_model(*model_);
  EXPECT_EQ(logit_difference(*clone, *model_), 0);
  const torch::NoGradGuard no_grad;
  clone->parameter_list().front().tensor.add_(1);
  EXPECT_GT(logit_difference(*clone, *model_), 0);
}

TEST_F(LoadTest, AnotherTemperatureSharesTheWeights) {
  const nn::TemperatureConfig focal{.method = "focal", .options = {{"t", 0.25}}};
  const auto loaded = load_model(folder_, {.temperature = focal});
  const auto shared = with_temperature(*model_, focal);
  EXPECT_EQ(logit_difference(*shared, *loaded.model), 0);
  EXPECT_GT(logit_difference(*shared, *model_), 0);
  EXPECT_EQ(shared->output_weight().const_data_ptr(), model_->output_weight().const_data_ptr());
  const auto own = model_->state();
  for (const auto& [name, tensor] : shared->state())
    if (!nn::is_temperature(name)) {
      EXPECT_EQ(tensor.const_data_ptr(), own.at(name).const_data_ptr()) << name;
    }
}

TEST_F(LoadTest, TheFolderOfARunStandsForItsBestModel) {
  const fs::path run = parent_.path() / "run";
  EXPECT_TRUE(says(message_of([&] { find_model(run); }), "is no model; expected a .gguf file"));
  write_model(run / "last", *model_);
  EXPECT_EQ(find_model(run), run / "last");
  write_model(run / "best", *model_);
  EXPECT_EQ(find_model(run), run / "best");
}

TEST_F(LoadTest, ConfigurationsThatAreWrongAreNamed) {
  EXPECT_TRUE(says(complaint_with("\"width\": 32", "\"widht\": 32"), "did you mean 'model.width'"));
  write_model(folder_, *model_);
  EXPECT_TRUE(says(complaint_with("\"tempera\": {", "\"x\": {"), "model_type"));
  EXPECT_TRUE(says(complaint_with("\"model_type\": \"tempera\"", "\"model_type\": \"lama\""),
                   "did you mean 'llama'"));
  EXPECT_TRUE(says(complaint_with("{", "["), (folder_ / "config.json").string()));
}

TEST_F(LoadTest, WeightsThatDoNotFitAreNamed) {
  const auto state = model_->state();
  const fs::path file = folder_ / "model.safetensors";
  auto changed = state;
  changed.erase("norm.weight");
  write_tensors(file, changed);
  EXPECT_TRUE(says(complaint(), "norm.weight"));
  changed["norm.weight"] = torch::ones({7});
  write_tensors(file, changed);
  EXPECT_TRUE(says(complaint(), "norm.weight"));
  changed = state;
  changed["nobody.weight"] = torch::ones({7});
  write_tensors(file, changed);
  EXPECT_TRUE(says(complaint(), "nobody.weight"));
  write_tensors(file, state);
  EXPECT_EQ(complaint(), "");
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_TRUE(says(complaint(), file.string()));
}

}  // namespace
}  // namespace tempera::models
