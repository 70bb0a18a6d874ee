#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tempera/config/common.h"
#include "tempera/config/options.h"
#include "tempera/dist/world.h"
#include "tempera/plot/html.h"

// The studies of `tempera study NAME`: controlled tasks on built-in data, and measurements of what
// attention does.
namespace tempera::study {

struct StudyReport {
  nlohmann::ordered_json document;
  std::string text;    // the same as tables for a terminal
  std::string folder;  // where it lies with its picture
};

// One study with its own options.
class Study {
 public:
  virtual ~Study() = default;
  virtual void declare(config::Options& options) = 0;
  virtual bool json() const = 0;
  // Throws UsageError where the options cannot be, before anything is read.
  virtual void validate() const = 0;
  // Where the models compute that ranks can share; nothing: there is nothing to share.
  virtual std::optional<config::Device> shared_device() const { return std::nullopt; }
  // Progress goes to standard error. Nothing is the result of ranks that are not the first.
  virtual std::optional<StudyReport> run(dist::World& world) = 0;
  // The page of a finished study of this kind, from its results alone.
  virtual plot::HtmlReport report_of(const std::filesystem::path& results) const = 0;
};

struct StudyEntry {
  std::string name;
  std::string help;
  std::shared_ptr<Study> (*make)();
};

std::span<const StudyEntry> studies();
// The file of a study's or a comparison's results in its folder. Throws Error where there is none
// yet.
std::filesystem::path results_in(const std::filesystem::path& folder);

std::shared_ptr<Study> make_denoise_study();
std::shared_ptr<Study> make_graph_study();
std::shared_ptr<Study> make_dilution_study();
std::shared_ptr<Study> make_ablation_study();
std::shared_ptr<Study> make_scaling_study();

// The options of the studies that train methods on a task of their own.
struct ToySettings {
  std::vector<std::string> methods;
  int64_t seeds = 5;
  std::string out;
  bool fresh = false;
  int64_t threads = 0;
  bool json = false;
  int64_t seed = 0;
  int64_t steps = 1000;
  int64_t batch = 64;
  double learning_rate = 1e-2;

  void declare(config::Options& options);
};

// Writes results.json, the report's page and its picture as report.svg and report.png.
void write_study(const std::filesystem::path& folder, const nlohmann::ordered_json& document,
                 const plot::Figure& figure, const plot::HtmlReport& report);

}  // namespace tempera::study
