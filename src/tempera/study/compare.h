#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tempera/dist/world.h"
#include "tempera/nn/config.h"
#include "tempera/plot/html.h"
#include "tempera/study/job.h"
#include "tempera/study/methods.h"
#include "tempera/study/sizing.h"
#include "tempera/study/tables.h"
#include "tempera/train/data_source.h"
#include "tempera/train/options.h"

namespace tempera::study {

// Several methods on the same data, seeds and budget. Without arguments: the built-in phone-book
// task.
struct CompareSettings {
  CompareSettings();

  std::vector<std::string> methods = {"softmax", "focal", "focal-learned", "ssa"};
  int64_t seeds = 3;
  std::string out = "runs/compare";
  bool fresh = false;
  int64_t threads = 0;
  bool json = false;
  double seconds = 0;  // that a comparison on text may take, all in all; 0: 600
  int64_t eval_tokens = 65'536;
  train::DataOptions data;
  train::TrainOptions training;
  nn::ModelConfig model;
  GivenSize given;  // what the sources of declare() say about the size; on text the rest is fitted

  void declare(config::Options& options);
  // Throws UsageError where they cannot be, before anything is read.
  void validate() const;

 private:
  void note_given(const config::Options& options);
};

// One method over its seeds.
struct MethodResults {
  Metric accuracy, loss;  // % of the targets; nats
  // Of some kinds of data alone.
  Metric answer_weight, answer_entropy, query_scale, bleu, chrf, f1_macro;
  std::vector<Curve> loss_curves;  // of every seed
  Summary train_seconds, cpu_seconds;
  int64_t parameters = 0, temperature_parameters = 0;
  int64_t steps = 0, tokens = 0;

  static void fields(auto& self, auto&& field) {
    field("accuracy", self.accuracy);
    field("loss", self.loss);
    field("answer_weight", self.answer_weight);
    field("answer_entropy", self.answer_entropy);
    field("query_scale", self.query_scale);
    field("bleu", self.bleu);
    field("chrf", self.chrf);
    field("f1_macro", self.f1_macro);
    field("loss_curves", self.loss_curves);
    field("train_seconds", self.train_seconds);
    field("cpu_seconds", self.cpu_seconds);
    field("parameters", self.parameters);
    field("temperature_parameters", self.temperature_parameters);
    field("steps", self.steps);
    field("tokens", self.tokens);
  }
};

struct Results {
  std::string tempera;  // the version
  std::string task;     // a built-in one, or "text", "translation", "classes"
  int64_t seeds = 0;
  Json settings;
  ByName<MethodResults> methods;  // the first is the baseline
  std::optional<Sizing> sizing;   // of a comparison on text

  static void fields(auto& self, auto&& field) {
    field("tempera", self.tempera);
    field("task", self.task);
    field("seeds", self.seeds);
    field("settings", self.settings);
    field("results", self.methods);
    field("sizing", self.sizing);
  }
};

// On text, fits the size of what is not given to the machine and the time, and says so on standard
// error. Then trains every method with every seed, in parallel over the ranks and their threads,
// and evaluates it on every held-out set. What a run folder already has is not done again. Returns
// the results to the first rank; `results.json` and `report.html` in the folder hold the same.
// verb: whose folder it is, as a person types it.
std::optional<Results> compare(const CompareSettings& settings, const std::string& verb,
                               dist::World& world);

// The results as a table for a terminal.
std::string results_text(const Results& results);
// A page with tables and charts. before: what the answer begins with.
plot::HtmlReport page_of(const Results& results, const std::string& before = "");
// The page of a comparison in a folder; of one that was stopped, with the seeds that all methods
// have. Throws Error where there are none.
plot::HtmlReport report_of_comparison(const std::filesystem::path& folder);
// The page and its picture.
void write_report(const Results& results, const std::filesystem::path& path);

}  // namespace tempera::study
