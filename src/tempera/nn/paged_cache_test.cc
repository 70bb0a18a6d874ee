#include "tempera/nn/paged_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tempera/base/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/linear.h"

namespace tempera::nn {
namespace {

using Ids = std::vector<int64_t>;

Ids ids(int64_t length, double phase) {
  const auto tokens = token_pattern(1, length, 11, phase);
  return {tokens.data_ptr<int64_t>(), tokens.data_ptr<int64_t>() + length};
}

// Sequences in a cache with blocks of 4 rows, each as far as add() took it.
class Paged {
 public:
  explicit Paged(Model& model) : model_(model), cache_(model.make_paged_cache(256, 4)) {}

  // The logits (rows, V) of the prompt, alone.
  torch::Tensor begin(const Ids& prompt) {
    sequences_.emplace_back();
    return extend({sequences_.size() - 1}, torch::tensor(prompt).view({1, -1}));
  }
  // Of one more token of each of these sequences, as one pass.
  torch::Tensor extend(const std::vector<size_t>& which, const torch::Tensor& tokens) {
    PagedRows rows{.tokens = tokens, .sequences = {}};
    for (const size_t i : which) {
      auto& sequence = sequences_[i];
      // Blocks in no order, as they come to lie in a server.
      while (static_cast<int64_t>(sequence.blocks.size()) * 4 < sequence.length + tokens.size(1))
        sequence.blocks.push_back((used_++ * 37) % 256);
      rows.sequences.push_back(sequence);
    }
    const torch::NoGradGuard no_grad;
    const ops::RowInvariance invariance;
    const auto logits = model_.project(model_.extend_paged(rows, cache_));
    for (size_t b = 0; b < which.size(); ++b) {
      auto& sequence = sequences_[which[b]];
      sequence.length += tokens.size(1);
      sequence.last_token = tokens[static_cast<int64_t>(b)][-1].item<int64_t>();
    }
    return logits;
  }

 private:
  Model& model_;
  PagedCache cache_;
  std::vector<PagedSequence> sequences_;
  int64_t used_ = 1;
};

std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> list;
  for (const auto& [method, options] : causal_method_cases())
    list.push_back(with_method(tiny_config(), method, options));
  ModelConfig other = tiny_config();
  other.window = 5;
  other.kv_heads = 1;
  other.heads = 4;
  other.token_shift = true;
  list.push_back(other);
  other.position = PositionKind::kLearned;
  list.push_back(other);
  other.position = PositionKind::kSinusoidal;
  list.push_back(other);
  return list;
}

// What a method reads of later rows it cannot read here.
bool is_cacheable(Model& model) {
  for (const auto* method : model.methods())
    if (!method->cacheable()) return false;
  return true;
}

TEST(PagedCache, GivesWhatTheFullPassGives) {
  for (const ModelConfig& config : configs()) {
    const auto model = moved_model(config);
    model->eval();
    if (!is_cacheable(*model)) continue;
    const torch::NoGradGuard no_grad;
    const Ids all = ids(40, 0.5);
    Batch batch;
    batch.tokens = torch::tensor(all).view({1, -1});
    const auto whole = model->logits(batch);
    Paged paged(*model);
    const auto first = paged.begin({all.begin(), all.begin() + 25});
    EXPECT_LT(largest_difference(first, whole.narrow(1, 0, 25)), 1e-4);
    const auto more =
        paged.extend({0}, torch::tensor(Ids(all.begin() + 25, all.begin() + 37)).view({1, -1}));
    EXPECT_LT(largest_difference(more, whole.narrow(1, 25, 12)), 1e-4);
    for (int64_t row = 37; row < 40; ++row)
      EXPECT_LT(
          largest_difference(paged.extend({0}, torch::full({1, 1}, all[static_cast<size_t>(row)])),
                             whole.narrow(1, row, 1)),
          1e-4)
          << config.temperature.method;
  }
}

TEST(PagedCache, FewerBitsGiveWhatTheContiguousCacheGives) {
  for (const auto type : {torch::kBFloat16, torch::kInt8}) {
    const auto model = moved_model(with_method(tiny_config(), "ssa+focal-learned"));
    model->eval();
    model->set_cache_type(type);
    const torch::NoGradGuard no_grad;
    const auto tokens = token_pattern(1, 40, 11, 0.5);
    auto cache = model->make_cache(1, 40);
    Paged paged(*model);
    const auto first = paged.begin(ids(25, 0.5));
    // A number beside the middle of two of the cache's may go to either.
    constexpr double kOneStep = 0.02;
    EXPECT_LT(
        largest_difference(first, model->project(model->extend(tokens.narrow(1, 0, 25), cache))),
        kOneStep);
    for (int64_t row = 25; row < 40; ++row) {
      const auto token = tokens.narrow(1, row, 1);
      EXPECT_LT(
          largest_difference(paged.extend({0}, token), model->project(model->extend(token, cache))),
          kOneStep)
          << type << ", row " << row;
    }
  }
}

TEST(PagedCache, APromptInPiecesHasTheFrequenciesOfTheWhole) {
  for (const ModelConfig& config : length_dependent_configs()) {
    const auto model = moved_model(config);
    model->eval();
    const auto tokens = token_pattern(1, 24, 11);
    Batch batch;
    batch.tokens = tokens;
    const torch::NoGradGuard no_grad;
    const auto whole = model->hidden(batch);
    for (const int64_t prompt_rows : {24, 0}) {
      auto cache = model->make_paged_cache(6, 4);
      PagedSequence sequence{.blocks = {3, 1, 5, 0, 2, 4}, .prompt_rows = prompt_rows};
      std::vector<torch::Tensor> pieces;
      for (const auto& piece : tokens.split(12, 1)) {
        pieces.push_back(model->extend_paged({piece, {sequence}}, cache));
        sequence.length += 12;
      }
      const double difference = largest_difference(torch::cat(pieces, 1), whole);
      EXPECT_TRUE(prompt_rows > 0 ? difference < 3e-5 : difference > 1e-3) << difference;
    }
  }
}

TEST(PagedCache, ARowOfBytesHasAFactorForEachHead) {
  const auto model = make_model(tiny_config(), 1);  // 2 heads of 16 columns
  const Method& method = *model->methods().front();
  EXPECT_EQ(LayerCache::row_bytes(method, torch::kFloat32), 2 * 32 * 4);
  EXPECT_EQ(LayerCache::row_bytes(method, torch::kBFloat16), 2 * 32 * 2);
  EXPECT_EQ(LayerCache::row_bytes(method, torch::kInt8), 2 * 32 + 2 * 2 * 4);
}

class PagedCacheOfType : public testing::TestWithParam<torch::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(, PagedCacheOfType,
                         testing::Values(torch::kFloat32, torch::kBFloat16, torch::kInt8));

TEST_P(PagedCacheOfType, GivesTheSameBitsAloneAndInABatch) {
  // How keys and values are kept is no matter of the method: a few will do.
  const size_t stride = GetParam() == torch::kFloat32 ? 1 : 6;
  const auto all = configs();
  for (size_t at = 0; at < all.size(); at += stride) {
    const ModelConfig& config = all[at];
    const auto model = moved_model(config);
    model->eval();
    if (!is_cacheable(*model)) continue;
    model->set_cache_type(GetParam());
    Paged alone(*model), together(*model);
    std::vector<size_t> which;
    const int64_t count = 10;  // more than the products for few rows take
    for (int64_t i = 0; i < count; ++i) {
      const Ids prompt = ids(1 + 3 * i, static_cast<double>(i));
      alone.begin(prompt);
      together.begin(prompt);
      which.push_back(static_cast<size_t>(i));
    }
    for (int64_t step = 0; step < 3; ++step) {
      const auto tokens = token_pattern(count, 1, 11, static_cast<double>(step));
      const auto batch = together.extend(which, tokens);
      for (int64_t i = 0; i < count; ++i) {
        const auto single = alone.extend({static_cast<size_t>(i)}, tokens.narrow(0, i, 1));
        EXPECT_TRUE(torch::equal(single[0], batch[i]))
            << config.temperature.method << " sequence " << i << " step " << step << " by "
            << largest_difference(single[0], batch[i]);
      }
    }
  }
}

TEST(PagedCache, SharesBlocksOfSequencesThatBeginAlike) {
  const auto model = moved_model(with_method(tiny_config(), "focal-learned"));
  model->eval();
  auto cache = model->make_paged_cache(8, 4);
  const auto extend = [&](const Ids& tokens, const PagedSequence& sequence) {
    return model->extend_paged({torch::tensor(tokens).view({1, -1}), {sequence}}, cache);
  };
  extend({1, 2, 3, 4}, {.blocks = {5}});
  const auto own = extend({6, 7}, {.blocks = {5, 2}, .length = 4, .last_token = 4});
  extend({8, 9}, {.blocks = {5, 3}, .length = 4, .last_token = 4});
  const auto again = extend({6, 7}, {.blocks = {5, 1}, .length = 4, .last_token = 4});
  EXPECT_TRUE(torch::equal(own, again));
}

TEST(PagedCache, RefusesRowsWithoutRoom) {
  const auto model = moved_model(tiny_config());
  model->eval();
  auto cache = model->make_paged_cache(4, 4);
  const auto complaint = [&](int64_t count, const std::vector<PagedSequence>& sequences) {
    return message_of([&] {
      model->extend_paged(
          {torch::ones({static_cast<int64_t>(sequences.size()), count}, torch::kInt64), sequences},
          cache);
    });
  };
  EXPECT_TRUE(says(complaint(5, {{.blocks = {1}}}), "room for 4 rows"));
  EXPECT_TRUE(says(complaint(1, {{.blocks = {4}}}), "block 4 given of 4"));
  EXPECT_TRUE(
      says(complaint(1, {{.blocks = {1}}, {.blocks = {2}}}), "begins in a pass of its own"));
  EXPECT_TRUE(says(complaint(2, {{.blocks = {1}, .length = 1}, {.blocks = {2}, .length = 1}}),
                   "any number of one sequence"));
}

}  // namespace
}  // namespace tempera::nn
