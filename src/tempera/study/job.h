#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/nn/model.h"
#include "tempera/study/pool.h"
#include "tempera/study/record.h"
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

// What a model made of one held-out set.
struct SetResult {
  std::string label;
  int64_t size = 0;  // entries of a book, tokens a row
  int64_t length = 0;
  double loss = 0;
  double accuracy = 0;
  int64_t targets = 0;
  std::optional<double> answer_weight = {},
                        answer_entropy = {};            // of tasks that know their answers
  std::optional<std::vector<double>> query_scale = {};  // the mean of each layer
  std::optional<double> f1_macro = {};                  // of classes
  std::optional<double> bleu = {}, chrf = {};           // of translations

  static void fields(auto& self, auto&& field) {
    field("label", self.label);
    field("size", self.size);
    field("length", self.length);
    field("loss", self.loss);
    field("accuracy", self.accuracy);
    field("targets", self.targets);
    field("answer_weight", self.answer_weight);
    field("answer_entropy", self.answer_entropy);
    field("query_scale", self.query_scale);
    field("f1_macro", self.f1_macro);
    field("bleu", self.bleu);
    field("chrf", self.chrf);
  }
};

// The loss of each step.
using Curve = std::vector<std::pair<int64_t, double>>;

struct JobResult {
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // of the thread that trained
  int64_t parameters = 0;
  int64_t temperature_parameters = 0;
  Curve loss_curve;
  std::vector<SetResult> sets;

  static void fields(auto& self, auto&& field) {
    field("steps", self.steps);
    field("tokens", self.tokens);
    field("seconds", self.seconds);
    field("cpu_seconds", self.cpu_seconds);
    field("parameters", self.parameters);
    field("temperature_parameters", self.temperature_parameters);
    field("loss_curve", self.loss_curve);
    field("sets", self.sets);
  }
};

// Trains, and evaluates on the held-out part of `dataset`, on the calling thread.
JobResult run_job(const Job& job, std::shared_ptr<const data::Dataset> dataset,
                  const ReportStep& report);

// Tells methods that ask for it how often each token occurs, counted over some rows of training.
void set_token_counts(nn::Model& model, const data::Dataset& dataset, int64_t batch);

}  // namespace tempera::study
