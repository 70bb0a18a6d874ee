#include "tempera/models/export.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"
#include "tempera/models/testing_models.h"
#include "tempera/models/tokenizer.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;

class ExportTest : public testing::Test {
 protected:
  static LoadedModel loaded(const nn::ModelConfig& config) {
    return {.model = nn::moved_model(config),
            .path = {},
            .family = "tempera",
            .config = {},
            .tokenizer = "bytes"};
  }
  std::string written(const LoadedModel& model, const ExportOptions& options) const {
    NewOutput out(out_, NewOutput::Kind::kFolder);
    return export_folder(model, out, options);
  }
  std::string complaint(const LoadedModel& model, const ExportOptions& options) const {
    const auto text = message_of([&] { written(model, options); });
    EXPECT_FALSE(fs::exists(out_)) << "something was left behind";
    return text;
  }

  const TempFolder folder_;
  const fs::path out_ = folder_.path() / "out";
};

TEST_F(ExportTest, ATemperatureThatStaysIsKeptBitForBit) {
  const auto model = loaded(nn::with_method(byte_config(), "ssa"));
  EXPECT_EQ(written(model, {}), "tempera");
  const auto back = load_model(out_);
  EXPECT_EQ(logit_difference(*back.model, *model.model), 0);
  EXPECT_TRUE(tokenizer_of(back));
}

TEST_F(ExportTest, FoldedItIsAModelOfTransformers) {
  const auto model = loaded(nn::with_method(byte_config(), "head,value"));
  EXPECT_EQ(written(model, {.fold = true}), "llama");
  const auto back = load_model(out_);
  EXPECT_EQ(back.family, "llama");
  EXPECT_EQ(back.model->config().temperature.method, "softmax");
  EXPECT_LT(logit_difference(*back.model, *model.model), kLogitTolerance);
}

TEST_F(ExportTest, ShardsAreReadBackAsOne) {
  const auto model = loaded(byte_config());
  EXPECT_EQ(written(model, {.shard_bytes = 20'000}), "llama");
  EXPECT_TRUE(fs::exists(out_ / "model.safetensors.index.json"));
  EXPECT_EQ(logit_difference(*load_model(out_).model, *model.model), 0);
}

TEST_F(ExportTest, RefusalsLeaveNothingBehind) {
  const auto ssa = loaded(nn::with_method(byte_config(), "ssa"));
  EXPECT_TRUE(says(complaint(ssa, {.fold = true}), "'ssa' depends on the token"));
  EXPECT_TRUE(says(complaint(ssa, {.as = "llama"}), "give --fold"));
  const auto plain = loaded(byte_config());
  EXPECT_TRUE(says(complaint(plain, {.as = "gpt2"}), "has no words for"));
  EXPECT_TRUE(says(complaint(plain, {.as = "lama"}), "did you mean 'llama'"));
}

TEST_F(ExportTest, AGgufFileHasTheSameLogits) {
  auto model = loaded(nn::with_method(byte_config(), "head,value"));
  model.tokenizer.clear();  // bytes have no words in GGUF
  const fs::path file = folder_.path() / "model.gguf";
  NewOutput out(file, NewOutput::Kind::kFile);
  EXPECT_FALSE(export_gguf(model, out, /*fold=*/true, io::GgmlType::kF32));
  const auto back = load_model(file);
  EXPECT_LT(logit_difference(*back.model, *model.model), kLogitTolerance);
}

}  // namespace
}  // namespace tempera::models
