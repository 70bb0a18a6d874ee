#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "tempera/data/dataset.h"
#include "tempera/nn/config.h"
#include "tempera/text/tokenizer.h"
#include "tempera/train/options.h"

namespace tempera::study {

// One model of a comparison: a method, a seed.
struct Job {
  nn::ModelConfig model;
  train::TrainOptions training;
  uint64_t seed = 0;
  // Of data to translate: its held-out part is translated and scored. None: not.
  const text::Tokenizer* translator = nullptr;
};

// Trains and evaluates on the calling thread. report(share done) is called every step and may
// throw. The result has "loss_curve" [[step, loss], ...], "sets" [{label, size, loss, accuracy,
// ...}], "parameters", "temperature_parameters", "steps", "seconds",
// "cpu_seconds" (of this thread).
nlohmann::ordered_json run_job(const Job& job, std::shared_ptr<const data::Dataset> dataset,
                               const std::function<void(double share)>& report);

}  // namespace tempera::study
