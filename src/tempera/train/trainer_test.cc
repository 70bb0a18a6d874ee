#include "tempera/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/config/settings.h"
#include "tempera/data/testing.h"
#include "tempera/data/text_dataset.h"
#include "tempera/models/load.h"
#include "tempera/ops/torch.h"
#include "tempera/train/data_source.h"

namespace tempera::train {
namespace {

nn::ModelConfig small_model() {
  nn::ModelConfig config;
  config.vocabulary = 259;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.mlp_size = 48;
  config.context = 16;
  return config;
}

std::shared_ptr<const data::Corpus> small_corpus() {
  data::ShardBuilder builder("bytes", 259);
  for (int document = 0; document < 8; ++document) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 150; ++i) ids.push_back('a' + (i * i + document) % 7);
    builder.append(ids);
    builder.end_document();
  }
  std::vector<data::TokenShard> shards;
  shards.push_back(data::TokenShard::parse(builder.finish(), "test"));
  return std::make_shared<data::Corpus>(std::move(shards), "test");
}

DataForStage text_data(uint64_t seed = 1) {
  return [corpus = small_corpus(), seed](size_t stage, int64_t length) {
    return std::make_shared<data::TextDataset>(
        corpus, data::TextOptions{.length = length, .seed = seed + stage, .held_out = 0.1});
  };
}

TrainOptions few_steps(int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.batch = 4;
  options.schedule.warmup = 3;
  options.eval_every = 5;
  options.save_every = 4;
  options.log_every = 1;
  options.device = config::Device::kCpu;
  return options;
}

struct Trace {
  std::vector<double> losses, rates;
  std::vector<double> validations;
  TrainEvents events() {
    TrainEvents events;
    events.on_step = [this](const StepReport& report) {
      losses.push_back(report.loss);
      rates.push_back(report.learning_rate);
    };
    events.on_validation = [this](int64_t, const Validation& validation) {
      validations.push_back(validation.loss);
    };
    return events;
  }
};

Trace train(const TrainOptions& options, const nn::ModelConfig& config) {
  Trace trace;
  Trainer trainer(options, nn::make_model(config, 5), text_data(), trace.events());
  trainer.run();
  return trace;
}

using data::error_of;

// Models this small are slower with more threads.
class TrainerTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST(Threads, LearnsAndIsTheSameBitsEachTime) {
  TrainOptions options = few_steps(30);
  options.optimizer.learning_rate = 1e-2;
  const Trace first = train(options, small_model());
  EXPECT_EQ(first.losses.size(), 30U);
  EXPECT_EQ(first.validations.size(), 6U);
  EXPECT_LT(first.losses.back(), 0.7 * first.losses.front());
  EXPECT_LT(first.validations.back(), first.validations.front());
  EXPECT_EQ(train(options, small_model()).losses, first.losses);
}

TEST_F(TrainerTest, MicroBatchesGiveTheSameStep) {
  TrainOptions options = few_steps(6);
  const Trace whole = train(options, small_model());
  options.micro_batch = 3;  // of 4 rows, with different numbers of targets
  const Trace cut = train(options, small_model());
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(cut.losses[i], whole.losses[i], 1e-4) << i;
  EXPECT_NE(cut.losses, whole.losses);
}

TEST_F(TrainerTest, RecomputingChangesNothingAlsoWithDropout) {
  nn::ModelConfig config = small_model();
  config.dropout_residual = 0.2;
  config.dropout_attention = 0.1;
  TrainOptions options = few_steps(5);
  const Trace plain = train(options, config);
  options.recompute = true;
  const Trace again = train(options, config);
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(again.losses[i], plain.losses[i], 1e-5) << i;
  config.dropout_residual = 0;
  EXPECT_NE(train(options, config).losses, again.losses);
}

TEST_F(TrainerTest, LowPrecisionAndSmoothingTakePart) {
  TrainOptions options = few_steps(12);
  const Trace plain = train(options, small_model());
  options.dtype = config::Dtype::kBfloat16;
  const Trace low = train(options, small_model());
  EXPECT_NE(low.losses, plain.losses);
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(low.losses[i], plain.losses[i], 0.1) << i;
  options = few_steps(1);
  options.label_smoothing = 0.5;
  EXPECT_NE(train(options, small_model()).losses.front(), plain.losses.front());
}

// The parts of a run give the same bits as the whole, from whichever checkpoint.
TEST_F(TrainerTest, AResumedRunIsBitEqual) {
  nn::ModelConfig config = small_model();
  config.dropout_residual = 0.1;
  config.temperature.method = "ssa";
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    TrainOptions options = few_steps(13);
    options.optimizer.kind = kind;
    const Trace whole = train(options, config);
    const TempFolder temporary;
    Trace parts;
    for (const int64_t stop : {6, 7, 11, 100}) {
      RunFolder folder(temporary.path() / "run");
      if (!folder.settings()) folder.begin({}, "");
      auto events = parts.events();
      std::unique_ptr<Trainer> trainer;
      events.signal = [&] { return trainer->step() >= stop ? 15 : 0; };
      trainer = std::make_unique<Trainer>(options, nn::make_model(config, 5), text_data(), events);
      trainer->attach(folder);
      if (stop < 13)
        EXPECT_THROW(trainer->run(), Interrupted);
      else
        EXPECT_EQ(trainer->run().step, 13);
    }
    EXPECT_EQ(parts.losses, whole.losses);
    EXPECT_EQ(parts.rates, whole.rates);
    EXPECT_EQ(parts.validations, whole.validations);
    const auto log = read_log(temporary.path() / "run" / "log.jsonl");
    EXPECT_EQ(log.size(), 13U + 3U);
  }
}

TEST_F(TrainerTest, TheModelOfARunIsReadBack) {
  nn::ModelConfig config = small_model();
  config.temperature.method = "ssa";
  config.temperature.layers = "1";
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run");
  folder.begin({}, "");
  Trainer trainer(few_steps(5), nn::make_model(config, 5), text_data(), {}, {"bytes"});
  trainer.attach(folder);
  trainer.run();
  const models::LoadedModel loaded = models::load_model(temporary.path() / "run");
  EXPECT_EQ(loaded.tokenizer, "bytes");
  // The options of the method that had their defaults are written out.
  EXPECT_EQ(config::to_json(config::describe(loaded.model->config())),
            config::to_json(config::describe(trainer.model().config())));
  for (const auto& [name, tensor] : trainer.model().state())
    EXPECT_TRUE(torch::equal(tensor, loaded.model->state().at(name))) << name;
}

TEST_F(TrainerTest, StagesGrowTheContextWithTheSameTokensAStep) {
  nn::ModelConfig config = small_model();
  config.context = 32;
  TrainOptions options = few_steps(0);
  options.stages = {"8:512", "32:256:50000"};
  const auto plan = plan_stages(options, config);
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].rows, 16);
  EXPECT_EQ(plan[0].steps, 4);
  EXPECT_EQ(plan[1].first_step, 4);
  EXPECT_EQ(plan[1].rows, 4);
  std::vector<int64_t> tokens;
  Trace trace;
  auto events = trace.events();
  events.on_step = [&](const StepReport& report) { tokens.push_back(report.tokens); };
  Trainer trainer(options, nn::make_model(config, 5), text_data(), events);
  EXPECT_EQ(trainer.run().step, 6);
  EXPECT_EQ(tokens, (std::vector<int64_t>{128, 256, 384, 512, 640, 768}));
  EXPECT_EQ(trainer.model().config().rope.base, 50000);
  EXPECT_EQ(trainer.model().config().context, 32);

  for (const char* bad : {"8", "8:", "x:5", "8:5:1", "0:5", "8:5:10:3"})
    EXPECT_THROW(parse_stage(bad), UsageError) << bad;
}

TEST_F(TrainerTest, BudgetsOfTokensAndSecondsEndTheRun) {
  TrainOptions options = few_steps(0);
  options.tokens = 200;
  EXPECT_EQ(train(options, small_model()).losses.size(), 4U);  // 64 tokens a step
  options.tokens = 0;
  options.seconds = 1e-9;
  EXPECT_EQ(train(options, small_model()).losses.size(), 1U);
}

TEST_F(TrainerTest, SaysWhereNumbersBecameInfinite) {
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run");
  folder.begin({}, "");
  const auto model = nn::make_model(small_model(), 5);
  TrainEvents events;
  events.on_step = [&](const StepReport& report) {
    // Large enough to overflow in the layer's product, and finite itself.
    const torch::NoGradGuard no_grad;
    if (report.step == 5)
      for (auto& parameter : model->parameter_list())
        if (parameter.name.starts_with("layers.1.mlp")) parameter.tensor.fill_(1e37);
  };
  Trainer trainer(few_steps(9), model, text_data(), events);
  trainer.attach(folder);
  const std::string message = error_of([&] { trainer.run(); });
  EXPECT_NE(message.find("step 6"), std::string::npos) << message;
  EXPECT_NE(message.find("the activations of layer 1 are "), std::string::npos) << message;
  EXPECT_NE(message.find("step-00000005"), std::string::npos) << message;
  EXPECT_EQ(folder.newest([](std::string_view) {})->state["step"], 5);

  {
    const torch::NoGradGuard no_grad;
    model->parameter_list().front().tensor.view(-1)[3] = std::nan("");
  }
  const auto trained = nn::make_model(small_model(), 5);
  trained->load_state(model->state());
  Trainer second(few_steps(9), trained, text_data(), {});
  const std::string parameter = error_of([&] { second.run(); });
  EXPECT_NE(parameter.find("the parameter " + model->parameter_list().front().name + " is NaN"),
            std::string::npos)
      << parameter;
}

TEST_F(TrainerTest, RefusesWhatDoesNotFit) {
  nn::ModelConfig config = small_model();
  config.vocabulary = 100;
  EXPECT_NE(error_of([&] { train(few_steps(1), config); }).find("vocabulary mismatch"),
            std::string::npos);
  TrainOptions options = few_steps(1);
  options.micro_batch = 5;
  EXPECT_THROW(train(options, small_model()), UsageError);

  // Another text under the same folder.
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run");
  folder.begin({}, "");
  Trainer first(few_steps(4), nn::make_model(small_model(), 5), text_data(), {});
  first.attach(folder);
  first.run();
  Trainer second(few_steps(8), nn::make_model(small_model(), 5), text_data(/*seed=*/2), {});
  EXPECT_NE(error_of([&] { second.attach(folder); }).find("the data is not the same"),
            std::string::npos);
}

TEST_F(TrainerTest, SeveralRunInThreadsWithTheBitsOfOne) {
  nn::ModelConfig config = small_model();
  config.dropout_residual = 0.1;
  const Trace alone = train(few_steps(6), config);
  std::vector<Trace> traces(2);
  std::vector<std::thread> workers;
  for (auto& trace : traces) workers.emplace_back([&] { trace = train(few_steps(6), config); });
  for (auto& worker : workers) worker.join();
  for (const auto& trace : traces) EXPECT_EQ(trace.losses, alone.losses);
}

}  // namespace
}  // namespace tempera::train
