#include "tempera/cli/run.h"

#include <gtest/gtest.h>

#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/cli/model.h"

namespace tempera::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  int64_t steps = 10;
  double rate = 0.5;

  void declare(config::Options& options) {
    options.option("steps", steps, config::range(1, 1000), "training steps");
    options.option("rate", rate, config::above(0), "learning rate");
  }
};

class OpenRunTest : public testing::Test {
 protected:
  // As the verb does each time that it is called.
  std::string open(const Settings& settings, bool resume = true) const {
    return message_of<UsageError>([&] {
      train::RunFolder folder(path_, "train");
      open_run(folder, settings, resume);
      folder.keep();
    });
  }

  const TempFolder parent_;
  const fs::path path_ = parent_.path() / "my run";
};

TEST_F(OpenRunTest, ANewRunCanGoOnFromItsFile) {
  EXPECT_EQ(open({.steps = 20}), "");
  EXPECT_EQ(open({.steps = 20}), "");
  const std::string toml = read_file(path_ / "run.toml", 1 << 20);
  EXPECT_EQ(config::from_toml<Settings>(toml, "run.toml").steps, 20);
  fs::remove(path_ / "run.toml");
  EXPECT_EQ(open({.steps = 20}), "");
  EXPECT_EQ(read_file(path_ / "run.toml", 1 << 20), toml);
}

TEST_F(OpenRunTest, OtherSettingsAreRefusedOneByOne) {
  EXPECT_EQ(open({}), "");
  const std::string message = open({.steps = 20});
  EXPECT_TRUE(says(message, "holds a run with other settings:"));
  EXPECT_TRUE(says(message, "steps"));
  EXPECT_EQ(message.find("rate"), std::string::npos) << message;
  EXPECT_TRUE(says(message, "(tempera train --config '" + (path_ / "run.toml").string() + "')"));
}

TEST_F(OpenRunTest, ARunIsNotContinuedAgainstTheWillOfItsUser) {
  EXPECT_EQ(open({}, /*resume=*/false), "");
  EXPECT_TRUE(says(open({}, /*resume=*/false), "holds a run, and --resume=false given"));
}

TEST(Quoted, AShellReadsTheNameAsItIs) {
  EXPECT_EQ(quoted("runs/a-1.toml"), "runs/a-1.toml");
  EXPECT_EQ(quoted("my run"), "'my run'");
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(quoted("$HOME"), "'$HOME'");
}

TEST(OpenModel, WithoutATokenizerItReadsNoText) {
  const OpenModel opened{.model = {}, .tokenizer = {}, .end_tokens = {}, .path = "runs/task/best"};
  EXPECT_TRUE(says(message_of([&] { tokenizer_of(opened); }),
                   "runs/task/best: the model has no tokenizer"));
}

TEST(LoadOptions, PlainAttentionIsNoWish) {
  EXPECT_FALSE(load_options(nn::TemperatureConfig{}).temperature);
  const nn::TemperatureConfig head{.method = "head"};
  EXPECT_EQ(load_options(head).temperature, head);
  EXPECT_EQ(load_options(models::ComputeOptions{.dtype = config::Dtype::kBfloat16}).dtype,
            torch::kBFloat16);
}

}  // namespace
}  // namespace tempera::cli
