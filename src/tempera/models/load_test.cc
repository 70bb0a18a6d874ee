#include "tempera/models/load.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/models/testing_models.h"
#include "tempera/models/tokenizer.h"

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

TEST_F(LoadTest, AClonePartsFromItsOrigin) {
  const auto clone = clone_model(*model_);
  EXPECT_EQ(logit_difference(*clone, *model_), 0);
  const torch::NoGradGuard no_grad;
  clone->parameter_list().front().tensor.add_(1);
  EXPECT_GT(logit_difference(*clone, *model_), 0);
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
