#include "tempera/study/job.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "tempera/data/tensors.h"
#include "tempera/eval/classification.h"
#include "tempera/eval/held_out.h"
#include "tempera/eval/translation.h"
#include "tempera/generate/translate.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/text/sequence_tokens.h"

namespace tempera::study {
namespace {

// Greedy translations of a held-out set, against the targets of the set.
void add_translation_scores(nn::Model& model, const data::Dataset& dataset, size_t set,
                            const text::Tokenizer& tokenizer, SetResult& result) {
  const data::Batch batch = dataset.held_out(set, 0, dataset.held_out_sets()[set].rows);
  const text::SequenceTokens ids(tokenizer);
  std::vector<std::vector<int64_t>> sources;
  std::vector<std::string> references, translations;
  const auto decoded = [&](auto begin, auto end) {
    std::vector<int32_t> tokens;
    for (; begin != end; ++begin)
      if (*begin != ids.end && *begin < tokenizer.vocabulary())
        tokens.push_back(static_cast<int32_t>(*begin));
    std::string text;
    tokenizer.decode(tokens, text);
    return text;
  };
  for (int64_t r = 0; r < batch.rows; ++r) {
    const auto source = batch.source.begin() + r * batch.source_length;
    const auto target = batch.targets.begin() + r * batch.length;
    const auto at = static_cast<size_t>(r);
    sources.emplace_back(source, source + batch.source_lengths[at]);
    references.push_back(decoded(target, target + batch.lengths[at]));
  }
  for (const auto& found : generate::beam_search(model, sources, ids, {}))
    translations.push_back(decoded(found.tokens.begin(), found.tokens.end()));
  const auto scores = eval::score_translations(translations, references);
  result.bleu = scores.bleu;
  result.chrf = scores.chrf;
}

void add_sets(nn::Model& model, const Job& job, const data::Dataset& dataset,
              std::vector<SetResult>& sets) {
  for (size_t set = 0; set < dataset.held_out_sets().size(); ++set) {
    const auto& held_out = dataset.held_out_sets()[set];
    const int64_t rows =
        job.eval_tokens > 0 ? std::max<int64_t>(1, job.eval_tokens / held_out.length) : 0;
    const auto scores = eval::score_held_out(model, dataset, set, rows);
    SetResult& result = sets.emplace_back(SetResult{.label = held_out.label,
                                                    .size = held_out.size,
                                                    .length = held_out.length,
                                                    .loss = scores.loss,
                                                    .accuracy = scores.accuracy,
                                                    .targets = scores.targets,
                                                    .answer_weight = scores.answer_weight,
                                                    .answer_entropy = scores.answer_entropy});
    if (!scores.query_scale.empty()) result.query_scale = scores.query_scale;
    if (!scores.labels.empty())
      result.f1_macro =
          eval::score_classes(scores.answers, scores.labels, dataset.classes()).f1_macro;
    if (job.translator) add_translation_scores(model, dataset, set, *job.translator, result);
  }
}

std::vector<SetResult> evaluate(nn::Model& model, const Job& job, const data::Dataset& dataset) {
  std::vector<SetResult> sets;
  add_sets(model, job, dataset, sets);
  for (const auto& longer : job.longer) add_sets(model, job, *longer, sets);
  return sets;
}

// Of this thread, in seconds. A job computes on its own thread alone, so that this is its cost
// whatever else the machine does.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void set_token_counts(nn::Model& model, const data::Dataset& dataset, int64_t batch) {
  const auto methods = model.methods();
  if (std::ranges::none_of(methods, [](const Method* m) { return m->reads_tokens(); })) return;
  constexpr uint64_t kSteps = 32;
  auto counts = torch::zeros({model.config().vocabulary}, torch::kInt64);
  for (uint64_t step = 0; step < kSteps; ++step) {
    auto rows = dataset.train(data::whole_batch(step, batch));
    counts +=
        torch::bincount(data::to_model_batch(std::move(rows)).tokens.flatten(), {}, counts.size(0));
  }
  for (Method* method : methods) method->set_token_counts(counts);
}

JobResult run_job(const Job& job, std::shared_ptr<const data::Dataset> dataset,
                  const ReportStep& report) {
  const auto model = nn::make_model(job.model, job.seed);
  set_token_counts(*model, *dataset, job.training.batch);
  Curve curve;
  train::TrainEvents events;
  events.on_step = [&](const train::StepReport& step) {
    curve.emplace_back(step.step - 1, step.loss);
    report(std::min(1.0, step.progress), step.step);
  };
  train::Trainer trainer(job.training, model, job.rows, std::move(events));
  const double before = thread_seconds();
  const train::TrainResult trained = trainer.run();
  const double cpu_seconds = thread_seconds() - before;
  // What looks into attention is there; text is only scored, where the model is.
  if (job.eval_tokens == 0) model->to(torch::kCPU);
  return {.steps = trained.step,
          .tokens = trained.tokens,
          .seconds = trained.seconds,
          .cpu_seconds = cpu_seconds,
          .parameters = model->parameter_count(),
          .temperature_parameters = model->temperature_parameter_count(),
          .loss_curve = std::move(curve),
          .sets = evaluate(*model, job, *dataset)};
}

}  // namespace tempera::study
