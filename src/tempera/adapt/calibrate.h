#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tempera/adapt/learn.h"
#include "tempera/adapt/measure.h"
#include "tempera/adapt/report.h"
#include "tempera/adapt/rope_rule.h"
#include "tempera/adapt/windows.h"
#include "tempera/config/common.h"
#include "tempera/dist/world.h"
#include "tempera/models/load.h"
#include "tempera/train/data_source.h"
#include "tempera/train/trainer.h"

// Learns temperatures and norm gains for a model that exists, and measures it before and after.
namespace tempera::adapt {

struct CalibrateOptions {
  std::string model;
  std::vector<std::string> text, eval_text;
  double held_out = 0.05;
  std::string learn = "head,value,norm";
  int64_t context = 0;
  RopeOptions rope;
  int64_t length = 0;
  int64_t tokens = 500'000;
  int64_t step_tokens = 16'384;
  double learning_rate = 3e-3;
  double temperature_rate = 10;
  std::vector<int64_t> eval_lengths;
  int64_t eval_tokens = 65'536;
  int64_t passkey_cases = 2;
  std::vector<std::string> passkey_text;
  WindowOptions windows;
  std::vector<std::string> controls;
  int64_t context_ranks = 1;  // that share each window: all there are
  int64_t seed = 0;
  config::Dtype dtype = config::Dtype::kFloat32;
  config::Device device = config::Device::kAuto;

  void declare(config::Options& options);
  // Throws UsageError where they contradict each other, before anything is read.
  void validate() const;

 private:
  void declare_training(config::Options& options);
  void declare_measuring(config::Options& options);
};

struct CalibrateEvents {
  train::Say say;
  // Runs a training and shows it under this name.
  std::function<train::TrainResult(
      const std::string& name, const std::function<train::TrainResult(train::TrainEvents)>& run)>
      show;
  std::string command;  // what a person types to go on
  // Where what was asked for is written for TensorBoard while it learns, not the controls; empty:
  // nowhere.
  std::filesystem::path tensorboard = {};
};

// Names that it makes in its folder beside what every training does.
const std::vector<std::string>& calibration_files();

//
// Ranks calibrate together, each its tokens of every window.
class Calibrator {
 public:
  // Reads the model; throws UsageError where it cannot be calibrated so. folder: of the first rank.
  Calibrator(const CalibrateOptions& options, dist::World& world, train::RunFolder* folder,
             CalibrateEvents events);

  // The text to learn from, and its tokenizer.
  train::DataOptions data() const;
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const { return tokenizer_; }
  // Throws where a text is too short or cannot be read, before anything is measured.
  void check_text(const train::DataSource& source);

  // What is finished already in the folder is not done again. For the first rank.
  std::optional<CalibrationResult> run(const train::DataSource& source);

 private:
  // A model to compare with, and what it learns; nothing: the positions alone.
  struct Control {
    std::string name, learn;
  };
  struct Prepared {
    std::shared_ptr<nn::Model> model;
    std::vector<nn::NamedParameter> learned;
  };
  struct Learned {
    std::shared_ptr<nn::Model> model;
    int64_t numbers = 0;
    train::TrainResult result = {};
  };

  void warn(const std::string& line);
  void check_same_texts();
  void read_eval_text();
  Prepared prepare(const Learn& learn, bool stretched) const;
  models::LoadOptions changes(const Learn& learn, bool stretched) const;
  train::TrainOptions training() const;
  WindowPlan window_plan() const;
  Learned learn_in(const std::string& what, train::RunFolder* folder,
                   const train::DataSource& source) const;
  std::set<int64_t> lengths_to_measure() const;
  std::vector<int64_t> windows_to_measure() const;
  HeldOutText held_out_text(const train::DataSource& source) const;
  MeasureOptions measuring() const;
  std::filesystem::path measure_file(const std::string& name) const;
  bool is_measured(const std::string& name) const;
  Measure measured(const std::string& name, const HeldOutText& text,
                   const std::function<std::shared_ptr<nn::Model>()>& model) const;
  std::vector<Control> controls() const;
  void measure_controls(const train::DataSource& source, const HeldOutText& text,
                        Measures& measures) const;
  std::vector<LayerTemperatures> temperatures(nn::Model& model,
                                              const train::DataSource& source) const;
  nlohmann::ordered_json rope_json(const nn::Model& model) const;
  void say_duration(nn::Model& model) const;

  const CalibrateOptions& options_;
  dist::World& world_;
  train::RunFolder* folder_;
  CalibrateEvents events_;
  models::LoadedModel original_;  // on the CPU, never changed: every variant is a clone of it
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  torch::Device device_;
  int64_t trained_ = 0, context_ = 0, length_ = 0;
  StretchedRope rope_;  // for the new context; as it was where none is given
  std::vector<eval::Document> eval_text_;
  int64_t held_out_ = 0;  // tokens of the text that are measured on; 0: another text is
  std::vector<std::string> warnings_;
};

}  // namespace tempera::adapt
