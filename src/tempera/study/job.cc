#include "tempera/study/job.h"

#include <algorithm>

#include "tempera/eval/held_out.h"
#include "tempera/nn/model.h"
#include "tempera/train/trainer.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

Json evaluate(nn::Model& model, const data::Dataset& dataset) {
  Json sets = Json::array();
  for (size_t set = 0; set < dataset.held_out_sets().size(); ++set) {
    const auto scores = eval::score_held_out(model, dataset, set);
    const auto& held_out = dataset.held_out_sets()[set];
    Json row{{"label", held_out.label}, {"size", held_out.size},       {"length", held_out.length},
             {"loss", scores.loss},     {"accuracy", scores.accuracy}, {"targets", scores.targets}};
    if (scores.answer_weight) row["answer_weight"] = *scores.answer_weight;
    if (!scores.query_scale.empty()) row["query_scale"] = scores.query_scale;
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
          {"sets", evaluate(*model, *dataset)}};
}

}  // namespace tempera::study
