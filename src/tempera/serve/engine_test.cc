#include "tempera/serve/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"
#include "tempera/serve/turns.h"

namespace tempera::serve {
namespace {

using std::chrono::milliseconds;

// Far more than a busy machine keeps a thread waiting.
constexpr milliseconds kPatience(60'000);

// More tokens than are written before a test has looked at a job.
constexpr int64_t kEndless = 20'000;

std::shared_ptr<nn::Model> small_model(int64_t context = 400) {
  nn::ModelConfig config = nn::with_method(nn::tiny_config(), "ssa");
  config.context = context;
  auto model = nn::moved_model(config);
  model->eval();
  return model;
}

std::vector<int64_t> prompt(int64_t length, double phase) {
  const auto tokens = nn::token_pattern(1, length, 11, phase);
  return {tokens.data_ptr<int64_t>(), tokens.data_ptr<int64_t>() + length};
}

JobRequest request(int64_t length, double phase, int64_t max_tokens = 12) {
  JobRequest made{.prompt = prompt(length, phase), .max_tokens = max_tokens, .top = 2};
  made.sampler.temperature = 1;
  made.sampler.seed = length;
  return made;
}

struct Result {
  std::vector<int64_t> ids;
  std::vector<double> chances, prompt_chances;
  End end = End::kNone;
  std::string error;

  bool operator==(const Result&) const = default;
};

Result finish(Job& job) {
  Result result;
  while (result.end == End::kNone) {
    const auto update = job.next(kPatience);
    if (!update) break;
    for (const auto& token : update->prompt) result.prompt_chances.push_back(token.log_probability);
    if (update->token) {
      result.ids.push_back(update->token->id);
      result.chances.push_back(update->token->log_probability);
    }
    result.end = update->end;
    result.error = update->error;
  }
  return result;
}

Result one(Engine& engine, const JobRequest& asked) { return finish(*engine.submit({asked})[0]); }

class EngineWithCache : public testing::TestWithParam<torch::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(, EngineWithCache,
                         testing::Values(torch::kFloat32, torch::kBFloat16, torch::kInt8));

TEST_P(EngineWithCache, GivesTheSameBitsAloneAndInABatch) {
  const auto model = small_model();
  model->set_cache_type(GetParam());
  std::vector<JobRequest> requests;
  for (int64_t i = 0; i < 14; ++i) {
    requests.push_back(request(1 + 23 * i, static_cast<double>(i), 5 + i));
    requests.back().prompt_scores = i % 3 == 0;
  }
  std::vector<Result> alone;
  for (const auto& asked : requests) {
    Engine engine(model, {.max_batch = 1, .cache_rows = 4000});
    alone.push_back(one(engine, asked));
    EXPECT_EQ(alone.back().end, End::kLength);
    EXPECT_EQ(alone.back().ids.size(), static_cast<size_t>(asked.max_tokens));
  }
  Engine engine(model, {.max_batch = 16, .cache_rows = 8000});
  // Twice: the second time the prompts' beginnings are there.
  for (int round = 0; round < 2; ++round) {
    const auto jobs = engine.submit(requests);
    for (size_t i = 0; i < jobs.size(); ++i)
      EXPECT_TRUE(finish(*jobs[i]) == alone[i]) << "job " << i << " round " << round;
  }
  EXPECT_GT(engine.state().prefix_hits, 0);
}

TEST(Engine, GivesTheSameBitsWhereMemoryIsShort) {
  const auto model = small_model();
  std::vector<JobRequest> requests;
  for (int64_t i = 0; i < 8; ++i) {
    requests.push_back(request(20 + 29 * i, static_cast<double>(i), 150));
    requests.back().prompt_scores = i % 3 == 0;
  }
  std::vector<Result> alone;
  for (const auto& asked : requests) {
    Engine engine(model, {.max_batch = 1});
    alone.push_back(one(engine, asked));
  }
  // They need 20 blocks of 128 rows in the end, and there are 8.
  Engine engine(model, {.max_batch = 8, .cache_rows = 1000});
  const auto jobs = engine.submit(requests);
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_TRUE(finish(*jobs[i]) == alone[i]) << "job " << i;
  EXPECT_GT(engine.state().preemptions, 0);
  EXPECT_EQ(engine.state().generated_tokens, 8 * 150);
}

TEST(Engine, CountsTheMemoryOfTheTypeThatIsKept) {
  const auto model = small_model();
  const auto bytes = [&](torch::ScalarType type) {
    model->set_cache_type(type);
    return Engine(model, {.cache_rows = 640}).state().cache_bytes;
  };
  // 2 layers with 32 columns of keys and of values, and 2 heads.
  EXPECT_EQ(bytes(torch::kFloat32), 640 * 2 * 64 * 4);
  EXPECT_EQ(bytes(torch::kBFloat16), 640 * 2 * 64 * 2);
  EXPECT_EQ(bytes(torch::kInt8), 640 * 2 * (64 + 2 * 2 * 4));
}

TEST(Engine, BeginsTextsThatMayBecomeLong) {
  Engine engine(small_model(kEndless), {.max_batch = 4, .cache_rows = kEndless + 1000});
  const std::vector<JobRequest> requests(3, request(10, 0, kEndless - 9));
  const auto jobs = engine.submit(requests);
  // Each may need the whole context, and still they begin together.
  for (const auto& job : jobs) EXPECT_TRUE(job->next(kPatience));
  EXPECT_EQ(engine.state().running, 3);
  for (const auto& job : jobs) job->cancel();
}

TEST(Engine, WritesWhatTheModelSays) {
  const auto model = small_model();
  Engine engine(model, {});
  auto asked = request(150, 0.5, 1);
  asked.sampler.temperature = 0;
  asked.prompt_scores = true;
  const Result result = one(engine, asked);
  const torch::NoGradGuard no_grad;
  nn::Batch batch;
  batch.tokens = torch::tensor(asked.prompt).view({1, -1});
  const auto chances = model->logits(batch)[0].log_softmax(1);
  ASSERT_EQ(result.prompt_chances.size(), 149U);
  for (size_t i = 0; i < 149; ++i)
    EXPECT_NEAR(result.prompt_chances[i],
                chances[static_cast<int64_t>(i)][asked.prompt[i + 1]].item<double>(), 1e-4);
  EXPECT_EQ(result.ids[0], chances[149].argmax().item<int64_t>());
}

TEST(Engine, ScoresAPromptAsOnePassWhereFrequenciesDependOnTheLength) {
  for (auto config : nn::length_dependent_configs()) {
    const auto model = nn::moved_model(config);
    model->eval();
    Engine engine(model, {.context = 400});
    auto asked = request(300, 0.5, 1);
    asked.prompt_scores = true;
    const Result result = one(engine, asked);
    const torch::NoGradGuard no_grad;
    nn::Batch batch;
    batch.tokens = torch::tensor(asked.prompt).view({1, -1});
    const auto chances = model->logits(batch)[0].log_softmax(1);
    ASSERT_EQ(result.prompt_chances.size(), 299U);
    for (size_t i = 0; i < 299; ++i)
      EXPECT_NEAR(result.prompt_chances[i],
                  chances[static_cast<int64_t>(i)][asked.prompt[i + 1]].item<double>(), 1e-4);
  }
}

// Keys of a prompt of another length are no keys of this one, though the tokens are the same.
TEST(Engine, PrefixesServeOnlyPromptsOfTheSameFrequencies) {
  for (auto config : nn::length_dependent_configs()) {
    if (config.rope.original_context > 0) config.rope.original_context = 290;
    const auto model = nn::moved_model(config);
    model->eval();
    const std::vector<JobRequest> requests = {request(280, 0.5, 9), request(300, 0.5, 9),
                                              request(350, 0.5, 9)};
    std::vector<Result> alone;
    for (const auto& asked : requests)
      alone.push_back(one(*std::make_unique<Engine>(model, EngineOptions{.context = 400}), asked));
    Engine engine(model, {.context = 400});
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_TRUE(one(engine, requests[i]) == alone[i]) << "prompt " << i << " round " << round;
    EXPECT_GT(engine.state().prefix_hits, 0);
  }
}

TEST(Engine, RequestsForPromptScoresDoNotReadThePrefixCache) {
  Engine engine(small_model(), {});
  auto asked = request(300, 0.5, 1);
  one(engine, asked);
  asked.prompt_scores = true;
  EXPECT_EQ(one(engine, asked).prompt_chances.size(), 299U);
  EXPECT_EQ(engine.state().prefix_hits, 0);
  asked.prompt_scores = false;
  one(engine, asked);
  EXPECT_EQ(engine.state().prefix_hits, 256);
}

TEST(Engine, EndsAtStopTokensAndTheContext) {
  Engine engine(small_model(), {});
  auto asked = request(399, 0.5, 50);
  const Result full = one(engine, asked);
  EXPECT_EQ(full.end, End::kLength);
  EXPECT_EQ(full.ids.size(), 2U);  // the last is written and never read
  for (int64_t id = 0; id < 11; ++id) asked.stop_tokens.push_back(id);
  EXPECT_EQ(one(engine, asked).end, End::kStop);
  asked.max_tokens = 0;
  EXPECT_TRUE(one(engine, asked).ids.empty());
  EXPECT_TRUE(says(message_of([&] { engine.submit({request(401, 1)}); }), "401 tokens given"));
}

TEST(Engine, LeavesAbandonedAndLateJobs) {
  Engine engine(small_model(kEndless), {});
  auto asked = request(10, 0.5, kEndless - 10);
  const auto job = engine.submit({asked})[0];
  job->next(kPatience);
  job->cancel();
  EXPECT_EQ(finish(*job).end, End::kCancelled);
  asked.deadline = Clock::now() + milliseconds(20);
  EXPECT_EQ(one(engine, asked).end, End::kDeadline);
  // The one that listens may have found a stop text, which is no failure.
  asked.deadline = Clock::time_point::max();
  const auto stopped = engine.submit({asked})[0];
  stopped->next(kPatience);
  stopped->cancel(End::kStop);
  stopped->cancel();
  EXPECT_EQ(finish(*stopped).end, End::kStop);
  const EngineState state = engine.state();
  EXPECT_EQ(state.finished, (std::map<std::string, int64_t>{{"abort", 1}, {"stop", 1}}));
  EXPECT_EQ(state.failed, (std::map<std::string, int64_t>{{"timeout", 1}}));
  while (engine.state().running > 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(engine.state().cache_used, 0);
}

TEST(Engine, RefusesWhatCannotWait) {
  Engine engine(small_model(), {.max_batch = 1, .max_queue = 2});
  std::vector<std::shared_ptr<Job>> jobs;
  const auto submit = [&](uint64_t group, size_t count) {
    std::vector<JobRequest> requests(count, request(10, 0, 300));
    for (auto& asked : requests) asked.group = group;
    for (const auto& job : engine.submit(requests)) jobs.push_back(job);
  };
  // The texts of one request leave room for other requests.
  submit(1, 100);
  submit(2, 1);
  EXPECT_TRUE(says(message_of<Busy>([&] { submit(3, 1); }), "2 requests with"));
  for (const auto& job : jobs) job->cancel();
  while (engine.state().waiting + engine.state().running > 0)
    std::this_thread::sleep_for(milliseconds(1));
  submit(4, 4000);
  EXPECT_TRUE(says(message_of<Busy>([&] { submit(5, 200); }), "1 requests with"));
  for (const auto& job : jobs) job->cancel();
}

TEST(Engine, LetsClientsTakeTurns) {
  Engine engine(small_model(kEndless), {.max_batch = 2});
  std::vector<JobRequest> many(2, request(5, 0, 60));
  many.resize(6, request(5, 0, kEndless - 5));
  for (auto& asked : many) asked.client = "greedy";
  auto single = request(5, 1, 5);
  single.client = "modest";
  std::vector<std::shared_ptr<Job>> crowd;
  std::shared_ptr<Job> modest;
  {
    const std::lock_guard nothing_is_computed(compute_turns());
    crowd = engine.submit(many);
    modest = engine.submit({single})[0];
  }
  // Behind the crowd it would wait for an endless one.
  EXPECT_EQ(finish(*modest).end, End::kLength);
  EXPECT_GE(engine.state().waiting, 2);
  for (const auto& job : crowd) job->cancel();
}

TEST(Engine, FailsWhatIsUnderWayWhenItEnds) {
  std::shared_ptr<Job> job;
  {
    Engine engine(small_model(kEndless), {});
    job = engine.submit({request(10, 0, kEndless - 10)})[0];
    job->next(kPatience);
  }
  EXPECT_EQ(finish(*job).end, End::kFailed);
}

}  // namespace
}  // namespace tempera::serve
