#include "tempera/data/tensors.h"

#include <gtest/gtest.h>

#include "tempera/data/generator.h"

namespace tempera::data {
namespace {

TEST(Tensors, HoldTheBatchAndOutliveIt) {
  const auto data = make_generator("phonebook", {}, 1);
  Batch batch = data->train(whole_batch(4, 3));
  const Batch copy = batch;
  const TensorBatch tensors = to_tensors(std::move(batch));
  ASSERT_EQ(tensors.tokens.sizes(), (torch::IntArrayRef{3, copy.length}));
  EXPECT_EQ(tensors.tokens.scalar_type(), torch::kInt64);
  EXPECT_EQ(tensors.targets[2][copy.length - 2].item<int64_t>(),
            copy.targets[copy.targets.size() - 2]);
  EXPECT_FALSE(tensors.document_lengths.defined());
  ASSERT_EQ(tensors.answer_positions.sizes(), (torch::IntArrayRef{3, copy.questions}));
  // The key at the answer's position holds the target of the question's position.
  EXPECT_TRUE(torch::equal(tensors.tokens.gather(1, tensors.answer_positions),
                           tensors.targets.gather(1, tensors.question_positions)));
}

TEST(Tensors, LabelsAreTheTargetsOfPaddedRows) {
  Batch batch;
  batch.rows = 2;
  batch.length = 3;
  batch.tokens = {1, 2, 3, 4, 5, 0};
  batch.lengths = {3, 2};
  batch.labels = {1, 0};
  batch.source_length = 2;
  batch.source = {7, 8, 9, 0};
  batch.source_lengths = {2, 1};
  const TensorBatch tensors = to_tensors(std::move(batch));
  EXPECT_TRUE(torch::equal(tensors.targets, torch::tensor({1, 0}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(tensors.lengths, torch::tensor({3, 2}, torch::kInt64)));
  EXPECT_EQ(tensors.source.sizes(), (torch::IntArrayRef{2, 2}));
  EXPECT_EQ(tensors.source_lengths[1].item<int64_t>(), 1);
}

}  // namespace
}  // namespace tempera::data
