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
#include "tempera/data/echoed_text.h"
#include "tempera/data/spread_windows.h"
#include "tempera/data/testing.h"
#include "tempera/data/text_dataset.h"
#include "tempera/models/load.h"
#include "tempera/nn/testing_model.h"
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

// One document.
std::shared_ptr<const data::Corpus> long_corpus() {
  data::ShardBuilder builder("bytes", 259);
  std::vector<int32_t> ids;
  for (int i = 0; i < 2000; ++i) ids.push_back('a' + i * i % 23);
  builder.append(ids);
  builder.end_document();
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

// Many short documents and a few long ones, so that some batches hold a boundary and some none.
std::shared_ptr<const data::Corpus> uneven_corpus() {
  data::ShardBuilder builder("bytes", 259);
  for (int document = 0; document < 60; ++document) {
    std::vector<int32_t> ids;
    for (int i = 0; i < (document % 12 == 0 ? 700 : 6); ++i)
      ids.push_back('a' + (i * i + document) % 7);
    builder.append(ids);
    builder.end_document();
  }
  std::vector<data::TokenShard> shards;
  shards.push_back(data::TokenShard::parse(builder.finish(), "test"));
  return std::make_shared<data::Corpus>(std::move(shards), "test");
}

// Forgets where documents end.
class Unmarked final : public data::Dataset {
 public:
  explicit Unmarked(data::TextDataset text) : text_(std::move(text)) {}
  std::string name() const override { return text_.name(); }
  int64_t vocabulary() const override { return text_.vocabulary(); }
  int64_t classes() const override { return text_.classes(); }
  int64_t train_length() const override { return text_.train_length(); }
  data::Batch train(const data::BatchRequest& request) const override {
    data::Batch batch = text_.train(request);
    batch.documents = 0;
    batch.document_lengths.clear();
    return batch;
  }
  const std::vector<data::HeldOutSet>& held_out_sets() const override {
    return text_.held_out_sets();
  }
  data::Batch held_out(size_t set, int64_t first_row, int64_t rows) const override {
    return text_.held_out(set, first_row, rows);
  }

 private:
  data::TextDataset text_;
};

std::vector<double> losses_of_documents(const TrainOptions& options, bool marked) {
  Trace trace;
  const DataForStage source = [&](size_t, int64_t length) -> std::shared_ptr<const data::Dataset> {
    data::TextDataset text(uneven_corpus(), {.length = length, .seed = 3, .held_out = 0.1});
    if (marked) return std::make_shared<data::TextDataset>(std::move(text));
    return std::make_shared<Unmarked>(std::move(text));
  };
  // Larger weights than those of a start: attention counts from the first step on.
  const auto model = nn::make_model(nn::with_method(small_model(), "ssa"), 5);
  for (const auto& parameter : model->parameter_list()) {
    const torch::NoGradGuard no_grad;
    torch::Tensor(parameter.tensor).mul_(2);
  }
  Trainer trainer(options, model, source, trace.events());
  trainer.run();
  return trace.losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

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

// Rows whose targets do not count the same and that stand apart: cut into micro-batches, and in a
// graph.
TEST_F(TrainerTest, EchoesAndSpreadRowsGiveTheSameStepHoweverItIsComputed) {
  TrainOptions options = few_steps(8);
  options.eval_every = options.save_every = 0;
  const auto losses = [&] {
    Trace trace;
    const auto data = [](size_t, int64_t length) {
      const auto rows = std::make_shared<data::TextDataset>(
          long_corpus(), data::TextOptions{.length = length, .seed = 1, .held_out = 0});
      const auto echoed = std::make_shared<data::EchoedText>(
          rows, data::EchoOptions{.share = 0.25, .length = 8, .until = 5, .seed = 1});
      return std::make_shared<data::SpreadWindows>(echoed,
                                                   data::SpreadOptions{.context = 256, .seed = 1});
    };
    auto model = small_model();
    model.context = 32;
    Trainer(options, nn::make_model(model, 5), data, trace.events()).run();
    return trace.losses;
  };
  const auto whole = losses();
  options.micro_batch = 3;
  EXPECT_LT(largest_difference(losses(), whole), 1e-4);
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
  options.device = config::Device::kCuda;
  EXPECT_LT(largest_difference(losses(), whole), 2e-3);
  options.micro_batch = 0;
  EXPECT_LT(largest_difference(losses(), whole), 2e-3);
}

TEST_F(TrainerTest, DocumentsAreApartOnAGpuAsOnTheCpu) {
  constexpr double kTolerance = 2e-3;
  TrainOptions options = few_steps(24);
  options.eval_every = options.save_every = 0;
  options.optimizer.learning_rate = 1e-3;
  const auto expected = losses_of_documents(options, /*marked=*/true);
  ASSERT_GT(largest_difference(losses_of_documents(options, /*marked=*/false), expected),
            10 * kTolerance)
      << "a mask that is lost would not be seen";
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU that torch can use";
  options.device = config::Device::kCuda;
  // As a graph, with the next batch fetched ahead, and one operator after the other.
  EXPECT_LT(largest_difference(losses_of_documents(options, true), expected), kTolerance);
  options.micro_batch = 2;
  EXPECT_LT(largest_difference(losses_of_documents(options, true), expected), kTolerance);
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
      RunFolder folder(temporary.path() / "run", "train");
      if (!folder.mark()) folder.begin({}, "");
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
  RunFolder folder(temporary.path() / "run", "train");
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

TEST_F(TrainerTest, StagesHaveTheSameRowsWhateverTheModelCouldTake) {
  nn::ModelConfig config = small_model();
  config.context = 131072;
  TrainOptions options = few_steps(0);
  options.stages = {"8:512", "32:256"};
  const auto plan = plan_stages(options, config);
  EXPECT_EQ(plan[0].rows, 16);
  EXPECT_EQ(plan[1].rows, 4);
}

TEST_F(TrainerTest, AFinishedRunIsValidatedWithTheBaseOfItsLastStage) {
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run", "train");
  folder.begin({}, "");
  nn::ModelConfig config = small_model();
  config.context = 32;
  TrainOptions options = few_steps(0);
  options.stages = {"8:512", "32:256:500"};
  std::vector<double> losses;
  for (int time = 0; time < 2; ++time) {
    Trainer trainer(options, nn::make_model(config, 5), text_data(), {});
    trainer.attach(folder);
    losses.push_back(trainer.run().validation->loss);
    EXPECT_EQ(trainer.model().config().rope.base, 500);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(TrainerTest, GoesOnAfterAValidationThatWasNotFinite) {
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run", "train");
  folder.begin({}, "");
  const auto model = nn::make_model(small_model(), 5);
  torch::Tensor weight = model->parameter_list().front().tensor;
  const auto good = weight.detach().clone();
  const auto set = [&](const torch::Tensor& value) {
    const torch::NoGradGuard no_grad;
    weight.copy_(value);
  };
  TrainEvents events;
  events.on_step = [&](const StepReport&) { set(torch::full_like(good, std::nan(""))); };
  events.on_validation = [&](int64_t, const Validation&) { set(good); };
  TrainOptions options = few_steps(5);
  options.eval_every = 1;
  Trainer trainer(options, model, text_data(), events);
  trainer.attach(folder);
  const auto first = trainer.run();
  EXPECT_FALSE(std::isfinite(first.validation->loss));
  EXPECT_FALSE(first.best);
  Trainer again(few_steps(7), nn::make_model(small_model(), 5), text_data(), {});
  again.attach(folder);
  EXPECT_EQ(again.step(), 5);
  const auto result = again.run();
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->step, 7);
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
  RunFolder folder(temporary.path() / "run", "train");
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
  const std::string message = message_of([&] { trainer.run(); });
  EXPECT_NE(message.find("step 6"), std::string::npos) << message;
  EXPECT_NE(message.find("the activations of layer 1 are "), std::string::npos) << message;
  // The validation after step 5 was not finite, so that it is no best one to keep.
  EXPECT_NE(message.find("step-00000004"), std::string::npos) << message;
  EXPECT_EQ(folder.newest([](std::string_view) {})->state["step"], 4);

  {
    const torch::NoGradGuard no_grad;
    model->parameter_list().front().tensor.view(-1)[3] = std::nan("");
  }
  const auto trained = nn::make_model(small_model(), 5);
  trained->load_state(model->state());
  Trainer second(few_steps(9), trained, text_data(), {});
  const std::string parameter = message_of([&] { second.run(); });
  EXPECT_NE(parameter.find("the parameter " + model->parameter_list().front().name + " is NaN"),
            std::string::npos)
      << parameter;
}

TEST_F(TrainerTest, RefusesWhatDoesNotFit) {
  nn::ModelConfig config = small_model();
  config.vocabulary = 100;
  EXPECT_NE(message_of([&] { train(few_steps(1), config); }).find("vocabulary mismatch"),
            std::string::npos);
  TrainOptions options = few_steps(1);
  options.micro_batch = 5;
  EXPECT_THROW(train(options, small_model()), UsageError);

  // Another text under the same folder.
  const TempFolder temporary;
  RunFolder folder(temporary.path() / "run", "train");
  folder.begin({}, "");
  Trainer first(few_steps(4), nn::make_model(small_model(), 5), text_data(), {});
  first.attach(folder);
  first.run();
  Trainer second(few_steps(8), nn::make_model(small_model(), 5), text_data(/*seed=*/2), {});
  EXPECT_NE(message_of([&] { second.attach(folder); }).find("the data is not the same"),
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
