#include "tempera/eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::eval {
namespace {

std::shared_ptr<nn::Model> model_of(const std::string& method = "ssa+focal-learned") {
  const auto model = nn::moved_model(nn::with_method(nn::tiny_config(), method));
  model->eval();
  return model;
}

Document document_of(int64_t tokens, double phase = 0) {
  const auto ids = nn::token_pattern(1, tokens, 11, phase).to(torch::kInt32);
  return {ids.data_ptr<int32_t>(), ids.data_ptr<int32_t>() + tokens};
}

// The loss of token `at` after the tokens [begin, at), by a pass of its own.
double loss_of(nn::Model& model, const Document& document, int64_t begin, int64_t at) {
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> before(document.begin() + begin, document.begin() + at);
  nn::Batch batch;
  batch.tokens = torch::tensor(before, torch::kInt64).unsqueeze(0);
  const auto logits = model.logits(batch)[0][at - begin - 1];
  return -logits.log_softmax(0)[document[static_cast<size_t>(at)]].item<double>();
}

TEST(Perplexity, EveryTokenIsPredictedOnceFromItsWindow) {
  const auto model = model_of();
  const std::vector<Document> documents = {document_of(23), document_of(1), document_of(9, 2.0)};
  for (const auto& [window, stride] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 8}, {8, 3}, {8, 1}, {5, 4}, {64, 64}, {64, 1}}) {
    double sum = 0;
    int64_t count = 0;
    for (const auto& document : documents) {
      for (int64_t at = 1; at < static_cast<int64_t>(document.size()); ++at) {
        // The first window that reaches as far as token `at`.
        int64_t begin = 0;
        while (begin + window < at) begin += stride;
        sum += loss_of(*model, document, begin, at);
        ++count;
      }
    }
    const auto scores = score_documents(*model, documents, {window, stride});
    EXPECT_EQ(scores.tokens, count);
    EXPECT_NEAR(scores.loss, sum / static_cast<double>(count), 1e-4) << window << " " << stride;
    EXPECT_NEAR(scores.perplexity, std::exp(scores.loss), 1e-9);
  }
}

TEST(Perplexity, ByPositionInTheWindow) {
  const auto model = model_of();
  const auto document = document_of(80);
  const auto scores = score_documents(*model, {{document}}, {64, 64});
  ASSERT_EQ(scores.by_position.size(), 3U);  // 1-15, 16-31, 32-64
  EXPECT_EQ(scores.by_position[0].tokens, 15 + 15);
  EXPECT_EQ(scores.by_position[1].last, 31);
  EXPECT_EQ(scores.by_position[2].first, 32);
  EXPECT_EQ(scores.by_position[2].last, 64);
  EXPECT_EQ(scores.by_position[2].tokens, 33) << "with the one token that has seen all 64";
  double sum = 0;
  for (int64_t at = 16; at < 32; ++at) sum += loss_of(*model, document, 0, at);
  EXPECT_NEAR(scores.by_position[1].loss, sum / 16, 1e-4);
  sum = 0;
  for (int64_t at = 32; at < 65; ++at) sum += loss_of(*model, document, 0, at);
  EXPECT_NEAR(scores.by_position[2].loss, sum / 33, 1e-4);
}

// Windows of every length: no row stands for a handful of tokens, and none is lost.
TEST(Perplexity, TheLastBucketHasEnoughTokens) {
  for (const int64_t window : {1, 15, 16, 17, 32, 48, 64, 66, 100, 256, 300}) {
    nn::Batch batch;
    batch.targets = torch::zeros({3, window}, torch::kInt64);
    LossByPosition sums;
    sums.add(torch::ones({3, window}), batch);
    const auto scores = sums.scores();
    EXPECT_EQ(scores.tokens, 3 * window);
    const auto& rows = scores.by_position;
    EXPECT_EQ(rows.back().last, window);
    for (size_t i = 1; i < rows.size(); ++i) {
      EXPECT_GE(8 * rows[i].tokens, rows[i - 1].tokens - 7) << window;
      EXPECT_EQ(rows[i].first, rows[i - 1].last + 1) << window;
    }
  }
}

TEST(Perplexity, PackedDocumentsCountFromTheirBegin) {
  nn::Batch batch;
  batch.targets = torch::zeros({1, 40}, torch::kInt64);
  batch.targets[0][39] = data::kIgnored;
  batch.documents = torch::tensor({{18, 0, 22}}, torch::kInt64);
  LossByPosition sums;
  sums.add(torch::cat({torch::full({1, 18}, 1.0F), torch::full({1, 22}, 3.0F)}, 1), batch);
  const auto scores = sums.scores();
  ASSERT_EQ(scores.by_position.size(), 2U);
  EXPECT_EQ(scores.by_position[0].tokens, 30);
  EXPECT_EQ(scores.by_position[1].tokens, 3 + 6);
  EXPECT_NEAR(scores.by_position[1].loss, (3 * 1 + 6 * 3) / 9.0, 1e-6);
  EXPECT_NEAR(scores.loss, (18 * 1 + 21 * 3) / 39.0, 1e-6);
}

TEST(Perplexity, ReadsFilesAndCountsBytes) {
  const TempFolder folder;
  const auto file = folder.path() / "a.txt";
  std::ofstream(file) << "hello\n<|endoftext|>\nabc\n";
  const text::ByteTokenizer bytes;
  const std::vector<std::filesystem::path> files = {file};
  const auto documents = read_documents(files, bytes);
  ASSERT_EQ(documents.size(), 2U);
  int64_t tokens = 0;
  for (const auto& document : documents) tokens += static_cast<int64_t>(document.size());
  EXPECT_EQ(predicted_bytes(documents, bytes), tokens - 2);
  EXPECT_EQ(read_documents(files, bytes, 3)[0].size(), 3U);
}

TEST(Perplexity, RefusesWhatDoesNotFit) {
  const auto model = model_of("softmax");
  const std::vector<Document> good = {document_of(10)};
  EXPECT_THROW(score_documents(*model, good, {0, 1}), UsageError);
  EXPECT_THROW(score_documents(*model, good, {4, 5}), UsageError);
  EXPECT_THROW(score_documents(*model, {{{1, 2, 11}}}, {4, 4}), Error);
  EXPECT_THROW(score_documents(*model, {{{1}}}, {4, 4}), Error);
  auto config = nn::tiny_config();
  config.position = nn::PositionKind::kLearned;
  config.context = 8;
  EXPECT_THROW(score_documents(*nn::make_model(config, 1), good, {9, 9}), UsageError);
}

}  // namespace
}  // namespace tempera::eval
