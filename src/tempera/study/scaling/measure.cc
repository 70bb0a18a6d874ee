#include "tempera/study/scaling/measure.h"

#include <algorithm>
#include <filesystem>

#include "tempera/base/error.h"
#include "tempera/data/random.h"
#include "tempera/data/tensors.h"
#include "tempera/eval/choices.h"
#include "tempera/eval/held_out.h"
#include "tempera/eval/likelihood.h"
#include "tempera/ops/torch.h"

namespace tempera::study::scaling {
namespace {

// Tokens that recall is measured on, at each length.
constexpr int64_t kRecallTokens = 32'768;
// The rows before the end of a text that stand for its length, and texts: for the entropy.
constexpr int64_t kLastRows = 16, kEntropyTexts = 8;

class JoinedRows final : public data::Dataset {
 public:
  explicit JoinedRows(std::shared_ptr<const data::Dataset> rows) : rows_(std::move(rows)) {}

  std::string name() const override { return rows_->name(); }
  int64_t vocabulary() const override { return rows_->vocabulary(); }
  int64_t classes() const override { return rows_->classes(); }
  int64_t train_length() const override { return rows_->train_length(); }
  data::Batch train(const data::BatchRequest& request) const override {
    return joined(rows_->train(request));
  }
  const std::vector<data::HeldOutSet>& held_out_sets() const override {
    return rows_->held_out_sets();
  }
  data::Batch held_out(size_t set, int64_t first_row, int64_t rows) const override {
    return joined(rows_->held_out(set, first_row, rows));
  }

 private:
  static data::Batch joined(data::Batch batch) {
    batch.documents = 0;
    batch.document_lengths.clear();
    return batch;
  }

  std::shared_ptr<const data::Dataset> rows_;
};

LengthLoss held_out_loss(nn::Model& model, const data::Dataset& dataset, int64_t tokens) {
  const auto& set = dataset.held_out_sets().front();
  const int64_t rows = std::clamp<int64_t>(tokens / set.length, 1, set.rows);
  return {set.length, eval::score_held_out(model, dataset, 0, rows).loss};
}

// Tokens of the held-out text in random order, twice: when they come again, each can be known from
// what followed it before. The first one that comes again cannot.
data::Batch repeated_rows(const data::Dataset& dataset, int64_t first, int64_t rows) {
  const auto& set = dataset.held_out_sets().front();
  data::Batch batch;
  batch.rows = rows;
  batch.length = set.length;
  for (int64_t row = first; row < first + rows; ++row) {
    auto tokens = dataset.held_out(0, row % set.rows, 1).tokens;
    tokens.resize(static_cast<size_t>(set.length / 2));
    data::RandomStream random(data::derive_seed(0, "study/scaling/recall"),
                              static_cast<uint64_t>(row));
    random.shuffle(std::span(tokens));
    const size_t half = tokens.size();
    tokens.insert(tokens.end(), tokens.begin(), tokens.begin() + static_cast<int64_t>(half));
    tokens.resize(static_cast<size_t>(set.length), tokens.back());
    std::vector<int64_t> targets(tokens.size(), data::kIgnored);
    for (size_t i = half; i + 1 < 2 * half; ++i) targets[i] = tokens[i + 1];
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
  }
  return batch;
}

LengthRecall recall(nn::Model& model, const data::Dataset& dataset) {
  const int64_t length = dataset.held_out_sets().front().length;
  const int64_t rows = std::clamp<int64_t>(kRecallTokens / length, 1, 64);
  const auto scores = eval::score_rows(model, rows, length, [&](int64_t first, int64_t count) {
    return repeated_rows(dataset, first, count);
  });
  return {length, scores.accuracy};
}

// Mean over layers, heads and the last rows of some texts of the trained length.
double mean_entropy(nn::Model& model, const data::Dataset& dataset) {
  const torch::NoGradGuard no_grad;
  const auto& set = dataset.held_out_sets().front();
  const int64_t last = std::min(kLastRows, set.length);
  const auto rows = torch::arange(set.length - last, set.length).unsqueeze(0);
  double sum = 0;
  const int64_t texts = std::min(kEntropyTexts, set.rows);
  for (int64_t text = 0; text < texts; ++text) {
    nn::Batch batch;
    batch.tokens =
        data::to_model_batch(dataset.held_out(0, text, 1), model.output_weight().device()).tokens;
    const auto layers = model.inspect(batch, rows, torch::zeros_like(rows));
    for (const auto& layer : layers)
      sum += layer.entropy.mean().item<double>() / static_cast<double>(layers.size());
  }
  return sum / static_cast<double>(texts);
}

void add_task(nn::Model& model, const StudyData& data, const train::DataSource& source,
              const std::string& given, JobResult& result) {
  const size_t at = given.find('=');
  const auto* task = eval::find_choice_task(given.substr(0, at));
  TEMPERA_CHECK(task && at != std::string::npos, "tasks: '", given, "' is unknown");
  auto examples = eval::read_examples(*task, given.substr(at + 1), data.task_limit);
  const auto requests = eval::requests_of(examples, *source.text_tokenizer());
  const auto likelihoods =
      eval::score_requests(model, requests, {.max_length = model.config().context});
  const auto scores = eval::summarize(*task, std::move(examples), likelihoods);
  for (const auto& metric : scores.metrics)
    result.tasks.push_back({task->name, metric.name, metric.estimate.value, metric.estimate.low,
                            metric.estimate.high});
}

}  // namespace

std::shared_ptr<const data::Dataset> joined_rows(const train::DataSource& source, int64_t length,
                                                 uint64_t seed) {
  return std::make_shared<JoinedRows>(source.dataset(length, seed));
}

std::vector<int64_t> measured_lengths(const train::DataSource& source, int64_t context) {
  std::vector<int64_t> lengths = {context};
  for (const int64_t factor : {2, 4, 8})
    if (factor * context <= source.held_out_tokens()) lengths.push_back(factor * context);
  return lengths;
}

void measure(nn::Model& model, const StudyData& data, const train::DataSource& source,
             JobResult& result) {
  model.eval();
  const Cell& cell = result.job.cell;
  for (const int64_t length : measured_lengths(source, cell.context)) {
    const auto dataset = joined_rows(source, length, 0);
    result.losses.push_back(held_out_loss(model, *dataset, data.eval_tokens));
    if (result.job.purpose != Purpose::kCell) return;  // rates are judged by one number
    result.recall.push_back(recall(model, *dataset));
  }
  result.entropy = mean_entropy(model, *joined_rows(source, cell.context, 0));
  for (const auto& task : data.tasks) add_task(model, data, source, task, result);
}

}  // namespace tempera::study::scaling
