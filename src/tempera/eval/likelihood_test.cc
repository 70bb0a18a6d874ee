#include "tempera/eval/likelihood.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::eval {
namespace {

std::vector<int32_t> some_tokens(int64_t count, double phase) {
  const auto ids = nn::token_pattern(1, count, 11, phase).to(torch::kInt32);
  return {ids.data_ptr<int32_t>(), ids.data_ptr<int32_t>() + count};
}

// By a pass of its own over the last `most` tokens.
Likelihood expected(nn::Model& model, const Request& request, int64_t most = 0) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> whole(request.context.begin(), request.context.end());
  whole.insert(whole.end(), request.continuation.begin(), request.continuation.end());
  if (most > 0 && static_cast<int64_t>(whole.size()) > most + 1)
    whole.erase(whole.begin(), whole.end() - (most + 1));
  nn::Batch batch;
  batch.tokens = torch::tensor(whole, torch::kInt64).unsqueeze(0);
  const auto chances = model.logits(batch)[0].log_softmax(1);
  Likelihood result{.log_probability = 0, .greedy = true};
  const auto count = static_cast<int64_t>(whole.size());
  for (auto at = count - static_cast<int64_t>(request.continuation.size()); at < count; ++at) {
    const int64_t target = whole[static_cast<size_t>(at)];
    result.log_probability += chances[at - 1][target].item<double>();
    result.greedy = result.greedy && chances[at - 1].argmax().item<int64_t>() == target;
  }
  return result;
}

// Questions with choices of different lengths, contexts that differ at their end, and loners.
std::vector<Request> mixed_requests(nn::Model& model) {
  std::vector<Request> list;
  for (size_t group = 0; group < 9; ++group) {
    const auto context =
        some_tokens(static_cast<int64_t>(3 + 4 * group), 0.7 * static_cast<double>(group));
    const size_t members = group % 3 == 0 ? 1 : group % 4 + 2;
    for (size_t i = 0; i < members; ++i) {
      Request request{
          context,
          some_tokens(static_cast<int64_t>(1 + i + group % 2), 5.0 + static_cast<double>(i)),
          group};
      if (group % 4 == 1) request.context.back() = static_cast<int32_t>(i);
      list.push_back(request);
    }
  }
  // One that greedy decoding writes.
  Request greedy{some_tokens(8, 3), {}, 9};
  std::vector<int64_t> tokens(greedy.context.begin(), greedy.context.end());
  for (int step = 0; step < 3; ++step) {
    nn::Batch batch;
    batch.tokens = torch::tensor(tokens, torch::kInt64).unsqueeze(0);
    tokens.push_back(model.logits(batch)[0][-1].argmax().item<int64_t>());
    greedy.continuation.push_back(static_cast<int32_t>(tokens.back()));
  }
  list.push_back(greedy);
  greedy.continuation.back() = (greedy.continuation.back() + 1) % 11;
  list.push_back(greedy);
  return list;
}

TEST(Likelihood, OfSharedBeginningsAsOfWholeTexts) {
  for (const char* method : {"softmax", "ssa+focal-learned", "log-n"}) {
    const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), method));
    model->eval();
    const auto requests = mixed_requests(*model);
    int64_t done = 0;
    const auto scores = score_requests(*model, requests, {.report = [&](int64_t n) { done = n; }});
    EXPECT_EQ(done, static_cast<int64_t>(requests.size()));
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto wanted = expected(*model, requests[i]);
      EXPECT_NEAR(scores[i].log_probability, wanted.log_probability, 1e-4) << method << " " << i;
      EXPECT_EQ(scores[i].greedy, wanted.greedy) << method << " " << i;
    }
    EXPECT_TRUE(scores[scores.size() - 2].greedy);
    EXPECT_FALSE(scores.back().greedy);
  }
}

TEST(Likelihood, OfTheEndOfALongText) {
  const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), "softmax"));
  model->eval();
  const auto requests = mixed_requests(*model);
  const auto scores = score_requests(*model, requests, {.max_length = 12});
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_NEAR(scores[i].log_probability, expected(*model, requests[i], 12).log_probability, 1e-4);
}

TEST(Likelihood, RefusesWhatHasNone) {
  const auto model = nn::make_model(nn::tiny_config(), 1);
  const auto score = [&](const Request& request, int64_t most = 0) {
    const std::vector<Request> list = {request};
    return score_requests(*model, list, {.max_length = most});
  };
  EXPECT_THROW(score({{}, {1}, 0}), Error);
  EXPECT_THROW(score({{1}, {}, 0}), Error);
  EXPECT_THROW(score({{1}, {11}, 0}), Error);
  EXPECT_THROW(score({{-1}, {1}, 0}), Error);
  EXPECT_THROW(score({{1}, {1, 2, 3}, 0}, 2), Error);
  EXPECT_TRUE(score_requests(*model, {}).empty());
}

TEST(EncodePair, MovesBlanksToTheContinuation) {
  const text::ByteTokenizer bytes;
  const auto pair = encode_pair(bytes, "ab \n", "cd");
  EXPECT_EQ(pair.context, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(pair.continuation, (std::vector<int32_t>{' ', '\n', 'c', 'd'}));
  EXPECT_EQ(encode_pair(bytes, "", "x").context,
            std::vector<int32_t>{text::ByteTokenizer::kEndOfText});
  EXPECT_THROW(encode_pair(bytes, "ab", ""), Error);
}

}  // namespace
}  // namespace tempera::eval
