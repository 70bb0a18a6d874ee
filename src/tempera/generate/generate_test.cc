#include "tempera/generate/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::generate {
namespace {

using nn::Batch;
using nn::Model;
using nn::ModelConfig;
using nn::PositionKind;

torch::Tensor full_pass(Model& model, const torch::Tensor& tokens) {
  const torch::NoGradGuard no_grad;
  Batch batch;
  batch.tokens = tokens;
  return model.hidden(batch);
}

// The hidden states when the tokens go in by the given numbers of rows.
torch::Tensor by_pieces(Model& model, const torch::Tensor& tokens, nn::ModelCache& cache,
                        const std::vector<int64_t>& pieces) {
  std::vector<torch::Tensor> parts;
  for (const auto& piece : tokens.split_with_sizes(pieces, 1))
    parts.push_back(model.extend(piece, cache));
  return torch::cat(parts, 1);
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b, const std::string& what) {
  EXPECT_LT((a - b).abs().max().item<double>(), 3e-5) << what;
}

std::vector<ModelConfig> cached_configs() {
  std::vector<ModelConfig> configs;
  for (const auto& [method, options] : nn::causal_method_cases()) {
    configs.push_back(nn::with_method(nn::tiny_config(), method, options));
    configs.back().heads = 4;
    configs.back().head_size = 16;
    configs.back().kv_heads = 2;
  }
  for (const auto position : {PositionKind::kLearned, PositionKind::kSinusoidal, PositionKind::kT5,
                              PositionKind::kNone}) {
    configs.push_back(nn::with_method(nn::tiny_config(), "ssa+focal-learned"));
    configs.back().position = position;
    configs.back().token_shift = true;
    configs.back().qk_norm = nn::QkNorm::kGain;
  }
  configs.push_back(nn::with_method(nn::tiny_config(), "ssa"));
  configs.back().window = 5;
  return configs;
}

TEST(Cache, DecodingEqualsTheFullPass) {
  size_t tested = 0;
  for (const auto& config : cached_configs()) {
    const auto model = nn::moved_model(config);
    model->eval();
    if (!model->methods().front()->cacheable()) continue;
    ++tested;
    // A long piece for the attention kernel, then a short one and single rows for the decode one.
    const auto tokens = nn::token_pattern(2, 24, 11);
    const auto expected = full_pass(*model, tokens);
    auto cache = model->make_cache(2, 40);
    const std::string what = config.temperature.method;
    expect_close(by_pieces(*model, tokens, cache, {18, 3, 1, 1, 1}), expected, what);
    // A second long piece behind the first, after going back.
    cache.truncate(7);
    expect_close(by_pieces(*model, tokens.narrow(1, 7, 17), cache, {17}), expected.narrow(1, 7, 17),
                 what + " truncated");
  }
  EXPECT_GE(tested, method_registry().size());
}

// How far a cache of few bits may move hidden states, relative to their norm. Measured on these
// models, whose weights are large: at most 0.015 in bf16 and 0.036 in 8 bits.
constexpr double kNarrow = 0.1;

TEST(Cache, FewerBitsMoveTheResultALittle) {
  for (const auto& config : cached_configs()) {
    const auto model = nn::moved_model(config);
    model->eval();
    if (!model->methods().front()->cacheable()) continue;
    const auto tokens = nn::token_pattern(2, 24, 11);
    const auto expected = full_pass(*model, tokens);
    for (const auto type : {torch::kBFloat16, torch::kInt8}) {
      model->set_cache_type(type);
      auto cache = model->make_cache(2, 40);
      const auto compare = [&](const torch::Tensor& given, const torch::Tensor& wanted) {
        const double moved = ((given - wanted).norm() / wanted.norm()).item<double>();
        EXPECT_LT(moved, kNarrow) << config.temperature.method << ", " << type;
        EXPECT_GT(moved, 0) << "the cache has all its bits";
      };
      const auto first = by_pieces(*model, tokens, cache, {18, 3, 1, 1, 1});
      compare(first, expected);
      EXPECT_EQ(cache.layer(0).keys().k.scalar_type(), type);
      // Copies go on alike, and so does the cache itself when it has gone back.
      auto fork = cache.fork(), chosen = cache.select({1, 0});
      const auto next = torch::tensor({{3}, {4}});
      const auto more = model->extend(next, cache);
      EXPECT_TRUE(torch::equal(model->extend(next, fork), more));
      EXPECT_TRUE(torch::equal(model->extend(next.flip(0), chosen), more.flip(0)));
      cache.truncate(7);
      compare(by_pieces(*model, tokens.narrow(1, 7, 17), cache, {17}), expected.narrow(1, 7, 17));
    }
  }
}

TEST(Cache, APromptInPiecesHasTheFrequenciesOfTheWhole) {
  for (const auto& config : nn::length_dependent_configs()) {
    const auto model = nn::moved_model(config);
    model->eval();
    const auto tokens = nn::token_pattern(2, 24, 11);
    const auto expected = full_pass(*model, tokens);
    auto cache = model->make_cache(2, 26);
    cache.set_prompt_rows(24);
    expect_close(by_pieces(*model, tokens, cache, {10, 3, 10, 1}), expected, "prompt");
    // What it would be without.
    auto other = model->make_cache(2, 24);
    const auto apart = by_pieces(*model, tokens, other, {10, 3, 10, 1});
    EXPECT_GT(nn::largest_difference(apart, expected), 1e-3);
    // A row behind the prompt has the frequencies of its own length.
    auto once = model->make_cache(2, 25);
    model->extend(tokens, once);
    const auto next = nn::token_pattern(2, 1, 11, 3);
    expect_close(model->extend(next, cache), model->extend(next, once), "behind the prompt");
  }
}

TEST(Generate, ALongPromptHasTheFrequenciesOfTheWhole) {
  for (auto config : nn::length_dependent_configs()) {
    if (config.rope.original_context > 0) config.rope.original_context = 2100;
    const auto model = nn::moved_model(config);
    model->eval();
    const auto tokens = nn::token_pattern(1, 2200, 11);
    const std::vector<int64_t> prompt(tokens.data_ptr<int64_t>(),
                                      tokens.data_ptr<int64_t>() + 2200);
    GenerateOptions options{.max_tokens = 1, .window = 0};
    options.sampler.temperature = 0;
    const auto answer = generate(*model, {prompt}, options);
    const torch::NoGradGuard no_grad;
    const auto chances =
        model->project(full_pass(*model, tokens)[0].slice(0, -1)).log_softmax(1)[0];
    ASSERT_EQ(answer[0].tokens.size(), 1U);
    EXPECT_NEAR(answer[0].tokens[0].log_probability, chances.max().item<double>(), 1e-4);
  }
}

TEST(Cache, ForksAreIndependent) {
  auto config = nn::with_method(nn::tiny_config(), "ssa+focal-learned");
  config.token_shift = true;
  const auto model = nn::moved_model(config);
  model->eval();
  const auto prompt = nn::token_pattern(1, 6, 11);
  const auto left = torch::tensor({{1, 2, 3}}), right = torch::tensor({{9, 8, 7}});
  auto cache = model->make_cache(1, 16);
  model->extend(prompt, cache);
  auto fork = cache.fork();
  const auto out_left = by_pieces(*model, left, cache, {1, 1, 1});
  const auto out_right = by_pieces(*model, right, fork, {2, 1});
  expect_close(out_left, full_pass(*model, torch::cat({prompt, left}, 1)).narrow(1, 6, 3), "left");
  expect_close(out_right, full_pass(*model, torch::cat({prompt, right}, 1)).narrow(1, 6, 3),
               "right");
  EXPECT_TRUE(torch::equal(fork.tokens(), torch::cat({prompt, right}, 1)));
}

TEST(Cache, SelectsSequences) {
  const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), "focal-learned"));
  model->eval();
  const auto prompts = nn::token_pattern(3, 5, 11);
  auto cache = model->make_cache(3, 8);
  model->extend(prompts, cache);
  auto chosen = cache.select({2, 0, 2});
  const auto next = torch::tensor({{1}, {2}, {3}});
  const auto rows = prompts.index_select(0, torch::tensor({2, 0, 2}));
  expect_close(model->extend(next, chosen),
               full_pass(*model, torch::cat({rows, next}, 1)).narrow(1, 5, 1), "selected");
}

TEST(Cache, RefusesWhatItCannotHold) {
  const auto model = nn::make_model(nn::tiny_config(), 1);
  model->eval();
  auto cache = model->make_cache(1, 4);
  EXPECT_THROW(model->extend(nn::token_pattern(1, 5, 11), cache), Error);
  EXPECT_THROW(model->extend(nn::token_pattern(2, 1, 11), cache), Error);
  model->extend(nn::token_pattern(1, 3, 11), cache);
  EXPECT_THROW(cache.truncate(4), Error);
  EXPECT_EQ(cache.length(), 3);
  model->train();
  EXPECT_THROW(model->extend(nn::token_pattern(1, 1, 11), cache), Error);
}

TEST(Cache, RefusesMethodsThatReadTheFuture) {
  const auto model = nn::make_model(
      nn::with_method(nn::tiny_config(), "focal-learned", {{"axis", std::string("sequence")}}), 1);
  EXPECT_THROW(model->make_cache(1, 4), Error);
}

std::vector<int64_t> answer_to(Model& model, const std::vector<int64_t>& prompt,
                               const GenerateOptions& options) {
  return generate(model, {prompt}, options).front().ids();
}

TEST(Generate, GreedyFollowsTheFullPass) {
  const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), "ssa"));
  model->eval();
  GenerateOptions options;
  options.max_tokens = 8;
  options.sampler.temperature = 0;
  const std::vector<int64_t> prompt = {3, 1, 4};
  std::vector<int64_t> streamed;
  const auto answer = generate(*model, {prompt}, options, [&](size_t which, const Token& token) {
    EXPECT_EQ(which, 0U);
    streamed.push_back(token.id);
    return true;
  });
  EXPECT_EQ(answer[0].tokens.size(), 8U);
  EXPECT_FALSE(answer[0].stopped);
  EXPECT_EQ(streamed, answer[0].ids());
  auto text = prompt;
  for (const auto& [token, log_probability] : answer[0].tokens) {
    const auto tokens = torch::tensor(text, torch::kInt64).unsqueeze(0);
    const auto logits = model->project(full_pass(*model, tokens)).select(1, tokens.size(1) - 1);
    EXPECT_EQ(logits.argmax().item<int64_t>(), token);
    EXPECT_NEAR(logits.log_softmax(1).max().item<double>(), log_probability, 1e-4);
    text.push_back(token);
  }
}

TEST(Generate, PromptsOfDifferentLengthsAnswerAsAlone) {
  auto config = nn::with_method(nn::tiny_config(), "ssa+focal-learned");
  config.token_shift = true;
  const auto model = nn::moved_model(config);
  model->eval();
  GenerateOptions options;
  options.max_tokens = 6;
  options.sampler.temperature = 0;
  const std::vector<std::vector<int64_t>> prompts = {{1, 2, 3, 4, 5, 6, 7}, {8, 9}, {5, 5, 5}};
  const auto together = generate(*model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(together[i].ids(), answer_to(*model, prompts[i], options)) << i;
}

TEST(Generate, StopsWhereItIsTold) {
  const auto model = nn::moved_model(nn::tiny_config());
  model->eval();
  GenerateOptions options;
  options.max_tokens = 20;
  const std::vector<int64_t> prompt = {1, 2};
  const auto answer = answer_to(*model, prompt, options);
  ASSERT_EQ(answer.size(), 20U);
  EXPECT_EQ(answer_to(*model, prompt, options), answer);
  options.stop_tokens = {answer[4]};
  const auto first = static_cast<size_t>(std::ranges::find(answer, answer[4]) - answer.begin());
  const auto stopped = generate(*model, {prompt}, options).front();
  EXPECT_EQ(stopped.tokens.size(), first);
  EXPECT_TRUE(stopped.stopped);
  options.stop_tokens = {};
  int calls = 0;
  const auto ended =
      generate(*model, {prompt}, options, [&](size_t, const Token&) { return ++calls < 3; });
  EXPECT_EQ(ended[0].tokens.size(), 3U);
  options.sampler.seed = 1;
  EXPECT_NE(answer_to(*model, prompt, options), answer);
}

TEST(Generate, KeepsToTheModelsLength) {
  auto config = nn::tiny_config();
  config.position = PositionKind::kLearned;
  config.context = 8;
  const auto model = nn::make_model(config, 1);
  model->eval();
  EXPECT_EQ(answer_to(*model, {1, 2, 3}, {.window = 0}).size(), 5U);
  EXPECT_EQ(answer_to(*model, {1, 2, 3}, {.max_tokens = 30}).size(), 30U);
  EXPECT_THROW(answer_to(*model, {}, {}), Error);
  EXPECT_THROW(answer_to(*model, {11}, {}), Error);
  EXPECT_THROW(answer_to(*model, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {}), Error);
  const auto classifier = nn::make_model(nn::phonebook_model(), 1);
  classifier->eval();
  EXPECT_THROW(answer_to(*classifier, {1}, {}), Error);
}

TEST(Generate, AFullWindowBeginsAnewWithItsNewerHalf) {
  const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), "ssa"));
  model->eval();
  GenerateOptions options;
  options.max_tokens = 20;
  options.window = 8;
  options.sampler.temperature = 0;
  std::vector<int64_t> text = {3, 1, 4}, seen = text;
  for (const int64_t token : answer_to(*model, text, options)) {
    if (seen.size() > 8) seen.erase(seen.begin(), seen.end() - 4);
    const auto tokens = torch::tensor(seen, torch::kInt64).unsqueeze(0);
    const auto logits = model->project(full_pass(*model, tokens)).select(1, tokens.size(1) - 1);
    EXPECT_EQ(logits.argmax().item<int64_t>(), token);
    seen.push_back(token);
  }
  const std::vector<int64_t> longer = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(answer_to(*model, longer, options), answer_to(*model, {6, 7, 8, 9}, options));
  // Prompts of different lengths, of which the longer is full first.
  EXPECT_EQ(generate(*model, {{1, 2, 3, 4, 5, 6, 7}, {8}}, options)[1].tokens.size(), 20U);
}

TEST(Generate, APenaltyOnRepetitionsGivesOtherTokens) {
  const auto model = nn::moved_model(nn::tiny_config());
  model->eval();
  GenerateOptions options;
  options.max_tokens = 8;
  options.sampler.temperature = 0;
  const auto plain = answer_to(*model, {1, 2}, options);
  options.sampler.repetition_penalty = 3;
  const auto answer = answer_to(*model, {1, 2}, options);
  EXPECT_NE(answer, plain);
  std::vector<int64_t> text = {1, 2};
  for (const int64_t token : answer) {
    const auto tokens = torch::tensor(text, torch::kInt64).unsqueeze(0);
    auto logits = model->project(full_pass(*model, tokens))[0][tokens.size(1) - 1];
    for (const int64_t seen : std::set<int64_t>(text.begin(), text.end())) {
      const double score = logits[seen].item<double>();
      logits[seen] = score > 0 ? score / 3 : score * 3;
    }
    EXPECT_EQ(logits.argmax().item<int64_t>(), token);
    text.push_back(token);
  }
}

TEST(Sampler, CutsByRankShareAndMinimum) {
  const auto logits = torch::tensor({{0.5, 0.2, 0.25, 0.05}}).log();
  const auto kept = [&](SamplerOptions options) {
    const auto p = sampling_probabilities(logits, options)[0];
    EXPECT_NEAR(p.sum().item<double>(), 1, 1e-6);
    std::string text;
    for (int64_t i = 0; i < 4; ++i)
      if (p[i].item<double>() > 0) text += std::to_string(i);
    return text;
  };
  EXPECT_EQ(kept({}), "0123");
  EXPECT_EQ(kept({.temperature = 0}), "0");
  EXPECT_EQ(kept({.top_k = 2}), "02");
  EXPECT_EQ(kept({.top_p = 0.4}), "0");
  EXPECT_EQ(kept({.top_p = 0.6}), "02");
  EXPECT_EQ(kept({.top_p = 0.8}), "012");
  EXPECT_EQ(kept({.min_p = 0.45}), "02");
  EXPECT_EQ(kept({.min_p = 1}), "0");
  EXPECT_EQ(kept({.top_k = 99}), "0123");
  const auto sharp = sampling_probabilities(logits, {.temperature = 0.5})[0];
  EXPECT_NEAR((sharp[0] / sharp[1]).item<double>(), 6.25, 1e-4);
}

TEST(Sampler, DrawsWithTheProbabilities) {
  Sampler sampler({.seed = 3});
  const auto p = torch::tensor({0.5, 0.0, 0.3, 0.2});
  const auto drawn = sampler.sample(p.log().expand({20000, 4}));
  const auto counts = torch::bincount(drawn, {}, 4).to(torch::kFloat64) / 20000;
  EXPECT_LT((counts - p).abs().max().item<double>(), 0.015);
  EXPECT_EQ(counts[1].item<double>(), 0);
}

TEST(Sampler, TakesTheLikeliestAtTinyTemperatures) {
  const auto logits = torch::tensor({{1.0, 3.0, 2.0}});
  for (const double temperature : {0.0, 1e-300, 1e-50, 1e-8, 1e-5})
    EXPECT_EQ(Sampler({.temperature = temperature}).sample(logits).item<int64_t>(), 1);
}

TEST(Sampler, RefusesScoresThatAreNotFiniteAtAnyTemperature) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    for (const double wrong : {std::nan(""), infinity})
      EXPECT_THROW(sampler.sample(torch::tensor({{1.0, wrong, 2.0}})), Error) << wrong;
    EXPECT_THROW(sampler.sample(torch::full({1, 3}, -infinity)), Error);
    EXPECT_EQ(sampler.sample(torch::tensor({{-infinity, 2.0, -infinity}})).item<int64_t>(), 1);
  }
}

TEST(Sampler, RefusesScoresThatAreNotNumbers) {
  Sampler sampler({});
  EXPECT_THROW(sampler.sample(torch::full({1, 3}, std::nan(""))), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
}

}  // namespace
}  // namespace tempera::generate
