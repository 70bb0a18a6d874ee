#include "tempera/study/job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tempera/eval/classification.h"
#include "tempera/eval/held_out.h"
#include "tempera/eval/translation.h"
#include "tempera/generate/translate.h"
#include "tempera/nn/model.h"
#include "tempera/text/sequence_tokens.h"
#include "tempera/train/trainer.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

// Greedy translations of a held-out set, against the targets of the set.
void add_translation_scores(nn::Model& model, const data::Dataset& dataset, size_t set,
                            const text::Tokenizer& tokenizer, Json& row) {
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
  row["bleu"] = scores.bleu;
  row["chrf"] = scores.chrf;
}

Json evaluate(nn::Model& model, const data::Dataset& dataset, const text::Tokenizer* translator) {
  Json sets = Json::array();
  for (size_t set = 0; set < dataset.held_out_sets().size(); ++set) {
    const auto scores = eval::score_held_out(model, dataset, set);
    const auto& held_out = dataset.held_out_sets()[set];
    Json row{{"label", held_out.label}, {"size", held_out.size},       {"length", held_out.length},
             {"loss", scores.loss},     {"accuracy", scores.accuracy}, {"targets", scores.targets}};
    if (scores.answer_weight) row["answer_weight"] = *scores.answer_weight;
    if (!scores.query_scale.empty()) row["query_scale"] = scores.query_scale;
    if (!scores.labels.empty())
      row["f1_macro"] =
          eval::score_classes(scores.answers, scores.labels, dataset.classes()).f1_macro;
    if (translator) add_translation_scores(model, dataset, set, *translator, row);
    sets.push_back(row);
  }
  return sets;
}

}  // namespace

Json run_job(const Job& job, std::shared_ptr<const data::Dataset> dataset,
             const std::function<void(double)>& report) {
  const auto model = nn::make_model(job.model, job.seed);
  Json curve = Json::array();
  train::TrainEvents events;
  events.on_step = [&](const train::StepReport& step) {
    curve.push_back({step.step - 1, step.loss});
    report(std::min(1.0, step.progress));
  };
  train::Trainer trainer(
      job.training, model, [&](size_t, int64_t) { return dataset; }, std::move(events));
  const train::TrainResult trained = trainer.run();
  return {{"steps", trained.step},
          {"tokens", trained.tokens},
          {"seconds", trained.seconds},
          {"parameters", model->parameter_count()},
          {"temperature_parameters", model->temperature_parameter_count()},
          {"loss_curve", std::move(curve)},
          {"sets", evaluate(*model, *dataset, job.translator)}};
}

}  // namespace tempera::study
