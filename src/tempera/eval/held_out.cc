#include "tempera/eval/held_out.h"

#include <algorithm>

#include "tempera/data/tensors.h"
#include "tempera/ops/torch.h"

namespace tempera::eval {
namespace {

// Enough rows to keep the matrix products busy, few enough for a small memory.
constexpr int64_t kTokensAtOnce = 16384;

struct Sums {
  double loss = 0;
  int64_t right = 0;
  int64_t targets = 0;
  // A layer: (heads), summed over rows and questions.
  std::vector<torch::Tensor> weight, entropy;
  int64_t questions = 0;
  std::vector<double> scale;  // a layer, summed over rows
  int64_t rows = 0;
  std::vector<int64_t> answers, labels;  // of rows with one answer each
};

// Only the rows that have a target are projected onto the classes.
void add_predictions(nn::Model& model, const nn::Batch& batch, Sums& sums) {
  const auto rows = model.scored_rows(batch).flatten(0, -2);
  const auto scored = batch.targets.flatten().ge(0).nonzero().squeeze(1);
  const auto targets = batch.targets.flatten().index_select(0, scored);
  const auto logits = model.project(rows.index_select(0, scored)).to(torch::kFloat32);
  const auto answers = logits.argmax(1);
  sums.loss += torch::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum).item<double>();
  sums.right += answers.eq(targets).sum().item<int64_t>();
  sums.targets += targets.size(0);
  if (batch.targets.dim() == 2) return;
  for (int64_t row = 0; row < targets.size(0); ++row) {
    sums.answers.push_back(answers[row].item<int64_t>());
    sums.labels.push_back(targets[row].item<int64_t>());
  }
}

void add_inspection(nn::Model& model, const nn::Batch& batch, const data::TensorBatch& rows,
                    Sums& sums) {
  const auto layers = model.inspect(batch, rows.question_positions, rows.answer_positions);
  sums.scale.resize(layers.size());
  sums.weight.resize(layers.size());
  sums.entropy.resize(layers.size());
  const auto add = [](torch::Tensor& sum, const torch::Tensor& pairs) {
    const auto heads = pairs.sum(at::IntArrayRef({0, 2}));
    sum = sum.defined() ? sum + heads : heads;
  };
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    add(sums.weight[layer], layers[layer].weight);
    add(sums.entropy[layer], layers[layer].entropy);
    const auto& a_q = layers[layer].a_q;  // undefined: plain attention
    const double mean = a_q.defined() ? a_q.mean().item<double>() : 1;
    sums.scale[layer] += mean * static_cast<double>(rows.tokens.size(0));
  }
  sums.questions += rows.question_positions.numel();
  sums.rows += rows.tokens.size(0);
}

// Of the head that puts most weight on the answer.
void set_answer(const Sums& sums, Scores& scores) {
  double best = -1;
  const auto questions = static_cast<double>(sums.questions);
  for (size_t layer = 0; layer < sums.weight.size(); ++layer) {
    const auto [most, head] = sums.weight[layer].max(0);
    if (most.item<double>() <= best) continue;
    best = most.item<double>();
    scores.answer_weight = best / questions;
    scores.answer_entropy = sums.entropy[layer][head.item<int64_t>()].item<double>() / questions;
  }
}

}  // namespace

Scores score_held_out(nn::Model& model, const data::Dataset& dataset, size_t set, int64_t rows) {
  const auto& held_out = dataset.held_out_sets().at(set);
  return score_rows(
      model, rows > 0 ? std::min(rows, held_out.rows) : held_out.rows, held_out.length,
      [&](int64_t first, int64_t count) { return dataset.held_out(set, first, count); });
}

Scores score_rows(nn::Model& model, int64_t rows, int64_t length, const RowSource& source) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto device = model.output_weight().device();
  const int64_t step = std::max<int64_t>(1, kTokensAtOnce / std::max<int64_t>(length, 1));
  Sums sums;
  for (int64_t first = 0; first < rows; first += step) {
    const auto tensors = data::to_tensors(source(first, std::min(step, rows - first)));
    const nn::Batch batch = data::to_model_batch(tensors, device);
    add_predictions(model, batch, sums);
    if (tensors.question_positions.defined()) add_inspection(model, batch, tensors, sums);
  }
  const auto targets = static_cast<double>(std::max<int64_t>(sums.targets, 1));
  Scores scores{.loss = sums.loss / targets,
                .accuracy = static_cast<double>(sums.right) / targets,
                .targets = sums.targets};
  if (sums.questions > 0) set_answer(sums, scores);
  for (const double scale : sums.scale)
    scores.query_scale.push_back(scale / static_cast<double>(sums.rows));
  scores.answers = std::move(sums.answers);
  scores.labels = std::move(sums.labels);
  return scores;
}

}  // namespace tempera::eval
