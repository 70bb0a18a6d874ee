#include "tempera/adapt/calibrate.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tempera/base/interrupt.h"
#include "tempera/base/testing.h"
#include "tempera/models/fold.h"
#include "tempera/models/testing_models.h"

namespace tempera::adapt {
namespace {

namespace fs = std::filesystem;

// What one call of the verb did.
struct Call {
  std::optional<CalibrationResult> result;  // none: it was interrupted
  train::TrainResult training;
  std::string said;
};

class CalibrateTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    std::string text;
    for (int i = 0; i < 900; ++i) text += concat("Line ", i * i % 97, " of ", i % 7, ".\n");
    write_file(text_, text);
    models::write_model(model_, *nn::make_model(models::byte_config(), 7));
  }
  void TearDown() override { at::set_num_threads(threads_); }

  CalibrateOptions options() const {
    CalibrateOptions options;
    options.model = model_.string();
    options.text = {text_.string()};
    options.tokens = 12 * 128;
    options.step_tokens = 128;
    options.length = 32;
    options.eval_lengths = {16, 32};
    options.eval_tokens = 256;
    options.passkey_cases = 0;
    options.device = config::Device::kCpu;
    return options;
  }

  // stop: the step after which a signal arrives; 0: none does.
  Call call(const CalibrateOptions& options, const std::string& out, int64_t stop = 0) const {
    Call made;
    int64_t step = 0;
    const auto say = [&](std::string_view line) { made.said += std::string(line) + "\n"; };
    train::RunFolder folder(path(out), "calibrate", calibration_files());
    if (!folder.mark()) folder.begin(nlohmann::ordered_json::object(), "");
    dist::World alone;
    Calibrator calibrator(
        options, alone, &folder,
        {.say = say,
         .show =
             [&](const std::string&, const auto& run) {
               train::TrainEvents events;
               events.on_step = [&](const train::StepReport& report) { step = report.step; };
               events.say = say;
               events.signal = [&] { return stop > 0 && step >= stop ? SIGINT : 0; };
               return made.training = run(std::move(events));
             },
         .command = "tempera calibrate"});
    const train::DataSource source(
        calibrator.data(), folder.data_path(), [](int64_t) {}, calibrator.tokenizer());
    calibrator.check_text(source);
    folder.keep();
    try {
      made.result = calibrator.run(source);
    } catch (const Interrupted&) {
      EXPECT_GT(stop, 0);
    }
    return made;
  }

  fs::path path(const std::string& name) const { return folder_.path() / name; }

  const TempFolder folder_;
  const fs::path text_ = path("text.txt"), model_ = path("model");

 private:
  int threads_ = at::get_num_threads();
};

// Without what the clock and the place say.
nlohmann::ordered_json found(const Call& call) {
  auto json = to_json(call.result.value());
  json.erase("seconds");
  json.erase("out");
  return json;
}

TEST_F(CalibrateTest, InterruptedAndContinuedItFindsTheSame) {
  const Call whole = call(options(), "whole");
  EXPECT_EQ(whole.training.step, 12);
  const Call first = call(options(), "parts", /*stop=*/5);
  ASSERT_FALSE(first.result);
  EXPECT_EQ(first.said.find("finished before"), std::string::npos);
  const Call second = call(options(), "parts");
  EXPECT_EQ(second.training.first_step, 5);
  EXPECT_TRUE(says(second.said, "measure before: finished before"));
  EXPECT_EQ(found(second), found(whole));
}

// Echoes in spread windows of a longer context, with a plain end.
TEST_F(CalibrateTest, ChangedWindowsAreTheSameAfterAnInterruption) {
  auto changed = options();
  changed.length = 0;
  changed.context = 256;
  changed.eval_lengths = {32};
  changed.windows = {.echo = 0.2, .echo_length = 8, .echo_until = 0.75, .spread = 64};
  const Call whole = call(changed, "whole");
  EXPECT_EQ(whole.training.step, 12);
  EXPECT_TRUE(says(whole.said, "echo: in windows of 64 tokens, 1.6 spans of 8"));
  EXPECT_TRUE(says(whole.said, "steps 1 to 9 of 12"));
  EXPECT_TRUE(says(whole.said, "spread: windows of 64 tokens in 4 parts, at positions up to 256"));
  EXPECT_EQ(found(whole)["windows"]["spread"]["window"], 64);
  ASSERT_FALSE(call(changed, "parts", /*stop=*/5).result);
  EXPECT_EQ(found(call(changed, "parts")), found(whole));
  // What is measured is the text as it is, and each part of what is done changes what is learned.
  const auto plain = options();
  auto longer = plain;
  longer.context = 256;
  longer.eval_lengths = {32};
  longer.length = 64;
  const auto others = found(call(longer, "plain"))["measures"];
  EXPECT_EQ(others["before"], found(whole)["measures"]["before"]);
  EXPECT_NE(others["after"], found(whole)["measures"]["after"]);
  changed.windows.spread_correction = 1;
  EXPECT_NE(found(call(changed, "as they are"))["measures"]["after"],
            found(whole)["measures"]["after"]);
}

TEST_F(CalibrateTest, SpreadWindowsAreMeasuredUpToTheContext) {
  auto changed = options();
  changed.length = 0;
  changed.context = 1024;
  changed.eval_lengths = {};
  changed.held_out = 0.2;
  changed.windows.spread = 64;
  const auto measures = call(changed, "out").result.value().measures;
  std::vector<int64_t> lengths;
  for (const auto& [length, scores] : measures[0].second.perplexity) lengths.push_back(length);
  EXPECT_EQ(lengths.back(), 1024);
}

// Where windows shorter than the context make it worse.
TEST_F(CalibrateTest, TheContextIsMeasuredWhateverTheWindows) {
  const auto lengths = [&](const CalibrateOptions& changed, const std::string& out) {
    const Call made = call(changed, out);
    std::vector<int64_t> list;
    for (const auto& [length, scores] : made.result.value().measures[0].second.perplexity)
      list.push_back(length);
    return list;
  };
  auto changed = options();
  changed.tokens = 128;
  EXPECT_EQ(lengths(changed, "given"), (std::vector<int64_t>{16, 32}));
  changed.eval_lengths = {};
  EXPECT_EQ(lengths(changed, "own"), (std::vector<int64_t>{64}));
  changed.context = 128;
  EXPECT_EQ(lengths(changed, "longer"), (std::vector<int64_t>{64, 128}));
}

TEST_F(CalibrateTest, OnlyWhatItNamesIsLearned) {
  const Call made = call(options(), "out");
  const auto& result = made.result.value();
  EXPECT_TRUE(result.folds);
  const auto before = models::load_model(model_).model;
  const auto after = models::load_model(path("out")).model;
  const auto old = before->state();
  int64_t numbers = 0;
  for (const auto& parameter : after->parameter_list()) {
    const bool learned =
        parameter.kind == nn::ParameterKind::kTemperature || is_norm_gain(parameter);
    if (learned) numbers += parameter.tensor.numel();
    const auto known = old.find(parameter.name);
    if (known == old.end()) continue;  // the temperature's
    EXPECT_EQ(torch::equal(parameter.tensor, known->second), !learned) << parameter.name;
  }
  EXPECT_EQ(result.numbers, numbers);
  ASSERT_EQ(result.measures.size(), 2U);
  EXPECT_LT(result.measures[1].second.perplexity.at(32).loss,
            result.measures[0].second.perplexity.at(32).loss);
  // What the report tells of the temperatures is what the weights take up.
  for (const auto& layer : result.temperatures) {
    EXPECT_EQ(layer.q.size(), 2U);
    EXPECT_EQ(layer.v.size(), 2U);
  }
  auto folded = models::fold(*after);
  const auto plain = nn::make_empty_model(folded.config);
  plain->load_state(folded.state);
  EXPECT_LT(models::logit_difference(*plain, *after), 1e-4);
}

TEST_F(CalibrateTest, ModelsThatItCannotTakeAreRefused) {
  const auto refusal = [&] { return message_of([&] { call(options(), "out"); }); };
  models::write_model(model_, *nn::make_model(models::byte_config(), 7), /*tokenizer=*/"");
  EXPECT_TRUE(says(refusal(), "the model has no tokenizer"));
  models::write_model(model_, *nn::make_model(nn::with_method(models::byte_config(), "ssa"), 7));
  EXPECT_TRUE(says(message_of<UsageError>([&] { call(options(), "out"); }),
                   "has the temperature 'ssa' already"));
  EXPECT_FALSE(fs::exists(path("out"))) << "a folder was left behind";
}

TEST_F(CalibrateTest, TextThatIsBothLearnedFromAndMeasuredOnIsTold) {
  auto same = options();
  same.eval_text = same.text;
  const Call made = call(same, "out");
  EXPECT_TRUE(
      says(made.said, "warning: '" + text_.string() + "' is the text that is learned from"));
  EXPECT_TRUE(says(made.result.value().warnings.back(), "is the text that is learned from"));
}

}  // namespace
}  // namespace tempera::adapt
