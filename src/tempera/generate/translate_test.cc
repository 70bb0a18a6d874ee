#include "tempera/generate/translate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tempera/base/error.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::generate {
namespace {

using Tokens = std::vector<int64_t>;

std::shared_ptr<nn::Model> tiny_translator(const std::string& method, int64_t vocabulary) {
  auto config = nn::with_method(nn::tiny_config(), method);
  config.kind = nn::ModelKind::kEncoderDecoder;
  config.vocabulary = vocabulary;
  auto model = nn::moved_model(config);
  model->eval();
  return model;
}

// 0 is the padding and the start, 1 the end.
text::SequenceTokens tiny_ids() {
  text::SequenceTokens ids{text::ByteTokenizer()};
  ids.pad = ids.start = 0;
  ids.end = 1;
  return ids;
}

// log p of every next token behind `written`, by a full pass without a cache or padding.
torch::Tensor next_scores(nn::Model& model, const Tokens& source, const Tokens& written) {
  const torch::NoGradGuard no_grad;
  Tokens tokens = {0};
  tokens.insert(tokens.end(), written.begin(), written.end());
  nn::Batch batch;
  batch.source = torch::tensor(source, torch::kInt64).unsqueeze(0);
  batch.tokens = torch::tensor(tokens, torch::kInt64).unsqueeze(0);
  return model.logits(batch).select(1, -1).squeeze(0).log_softmax(0);
}

const std::vector<Tokens> kSources = {{5, 3, 9, 2, 1}, {4, 1}, {8, 8, 6, 10, 3, 7, 1}, {2, 2, 1}};

TEST(Translate, OneBeamIsGreedyWhateverTheOtherSourcesAre) {
  for (const std::string method : {"softmax", "ssa", "focal-learned"}) {
    const auto model = tiny_translator(method, 11);
    const auto found = beam_search(*model, kSources, tiny_ids(), {.beams = 1, .max_tokens = 9});
    for (size_t i = 0; i < kSources.size(); ++i) {
      Tokens greedy;
      double sum = 0;
      bool ended = false;
      while (greedy.size() < 9 && !ended) {
        const auto scores = next_scores(*model, kSources[i], greedy);
        const auto best = scores.argmax().item<int64_t>();
        sum += scores[best].item<double>();
        ended = best == 1;
        if (!ended) greedy.push_back(best);
      }
      EXPECT_EQ(found[i].tokens, greedy) << method << " " << i;
      EXPECT_EQ(found[i].ended, ended);
      EXPECT_NEAR(found[i].log_probability, sum, 1e-4) << method << " " << i;
    }
  }
}

// The scores of all outputs that end within `room` tokens, by trying each.
void try_all(nn::Model& model, const Tokens& source, const Tokens& written, double sum,
             int64_t room, std::map<Tokens, double>& all) {
  if (static_cast<int64_t>(written.size()) == room) return;
  const auto scores = next_scores(model, source, written);
  all[written] = sum + scores[1].item<double>();
  for (int64_t token = 0; token < scores.size(0); ++token) {
    if (token == 1) continue;
    Tokens longer = written;
    longer.push_back(token);
    try_all(model, source, longer, sum + scores[token].item<double>(), room, all);
  }
}

TEST(Translate, EnoughBeamsFindTheBestOfAll) {
  const auto model = tiny_translator("ssa", 5);
  const std::vector<Tokens> sources = {{4, 3, 2, 1}, {2, 1}};
  for (const double penalty : {0.0, 1.0, 2.0}) {
    const auto found = beam_search(*model, sources, tiny_ids(),
                                   {.beams = 200, .length_penalty = penalty, .max_tokens = 4});
    for (size_t i = 0; i < sources.size(); ++i) {
      std::map<Tokens, double> all;
      try_all(*model, sources[i], {}, 0, 4, all);
      double best = -1e9;
      Tokens winner;
      for (const auto& [tokens, sum] : all) {
        const double score = sum / std::pow(static_cast<double>(tokens.size() + 1), penalty);
        if (score > best) winner = tokens;
        best = std::max(best, score);
      }
      EXPECT_EQ(found[i].tokens, winner) << penalty;
      EXPECT_NEAR(found[i].score, best, 1e-5);
      EXPECT_TRUE(found[i].ended);
    }
  }
}

TEST(Translate, MoreBeamsAreNoWorseHere) {
  const auto model = tiny_translator("softmax", 11);
  const auto one = beam_search(*model, kSources, tiny_ids(), {.beams = 1, .max_tokens = 6});
  const auto many = beam_search(*model, kSources, tiny_ids(), {.beams = 8, .max_tokens = 6});
  for (size_t i = 0; i < kSources.size(); ++i)
    EXPECT_TRUE(!one[i].ended || many[i].score >= one[i].score - 1e-6) << i;
}

TEST(Translate, BadInputIsRefused) {
  const auto model = tiny_translator("softmax", 11);
  EXPECT_THROW(beam_search(*model, {{}}, tiny_ids(), {}), Error);
  EXPECT_THROW(beam_search(*model, {{99}}, tiny_ids(), {}), Error);
  EXPECT_THROW(beam_search(*model, {{2}}, tiny_ids(), {.beams = 0}), Error);
  const auto decoder = nn::make_model(nn::tiny_config(), 0);
  EXPECT_THROW(beam_search(*decoder, {{2}}, tiny_ids(), {}), Error);
}

}  // namespace
}  // namespace tempera::generate
