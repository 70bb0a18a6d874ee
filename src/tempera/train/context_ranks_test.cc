#include "tempera/train/context_ranks.h"

#include <gtest/gtest.h>

#include "tempera/dist/testing.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

TEST(ContextRanks, EachTeamHasItsOwnSequences) {
  const nn::ModelConfig config = nn::with_method(nn::tiny_config(), "ssa");
  const auto errors = dist::run_in_threads(4, {.timeout = 60}, [&](dist::World& world) {
    at::set_num_threads(1);
    const auto model = nn::moved_model(config);
    nn::Batch batch = nn::tiny_batch(2, 16);
    batch.tokens = (batch.tokens + world.rank() / 2).remainder(config.vocabulary);
    const auto expected = nn::eval_logits(*model, batch);
    {
      const ContextRanks context(world, *model, 2);
      const auto own = nn::eval_logits(*model, batch);
      EXPECT_EQ(own.size(1), 8);
      EXPECT_LT(nn::largest_difference(own, context.share().own(expected)), 1e-5);
    }
    EXPECT_EQ(nn::eval_logits(*model, batch).size(1), 16);
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

}  // namespace
}  // namespace tempera::train
