#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/nn/model.h"
#include "tempera/study/pool.h"
#include "tempera/text/tokenizer.h"
#include "tempera/train/trainer.h"

namespace tempera::study {

// One model of a comparison: a method, a seed.
struct Job {
  nn::ModelConfig model;
  train::DataForStage rows;  // to train on
  train::TrainOptions training;
  uint64_t seed = 0;
  // Of data to translate: its held-out part is translated and scored. None: not.
  const text::Tokenizer* translator = nullptr;
  // The same held-out text in longer rows, measured too.
  std::vector<std::shared_ptr<const data::Dataset>> longer = {};
  int64_t eval_tokens = 0;  // of text, measured at each length, at most; 0: all
};

// Trains, and evaluates on the held-out part of `dataset`, on the calling thread. The result has
// "loss_curve" [[step, loss], ...], "sets" [{label, size, loss, accuracy, ...}], "parameters",
// "temperature_parameters", "steps", "seconds", "cpu_seconds" (of this thread).
nlohmann::ordered_json run_job(const Job& job, std::shared_ptr<const data::Dataset> dataset,
                               const ReportStep& report);

// Tells methods that ask for it how often each token occurs, counted over some rows of training.
void set_token_counts(nn::Model& model, const data::Dataset& dataset, int64_t batch);

}  // namespace tempera::study
