#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tempera/adapt/measure.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"

// What a calibration found, as words, pictures and JSON.
namespace tempera::adapt {

// By the name of the model: "before", "after", then the controls.
using Measures = std::vector<std::pair<std::string, Measure>>;

struct CalibrationResult {
  std::string model;  // as it was given
  std::string name;   // of its file or folder
  std::string out;
  std::string learned;  // what --learn named
  bool folds = false;   // into plain weights
  int64_t numbers = 0;  // learned ones
  int64_t parameters = 0;
  int64_t context = 0, length = 0;
  nlohmann::ordered_json rope = {};     // the rule and its frequencies; null: as they were
  nlohmann::ordered_json windows = {};  // what was done to the text; null: nothing
  int64_t tokens = 0;
  double seconds = 0;
  Measures measures;
  std::vector<LayerTemperatures> temperatures;
  std::vector<std::string> warnings;
};

// Where the model after is worse than the one before: a line each.
std::vector<std::string> worse_places(const Measure& before, const Measure& after);

nlohmann::ordered_json to_json(const CalibrationResult& result);
// What to_json() wrote; throws Error where it is something else. where: names it in messages.
CalibrationResult calibration_of(const nlohmann::ordered_json& json, const std::string& where);
std::string to_text(const CalibrationResult& result);
plot::Figure to_figure(const CalibrationResult& result);
plot::HtmlReport to_html(const CalibrationResult& result);
// calibration.json, calibration.svg, calibration.png and report.html.
void save(const CalibrationResult& result, const std::filesystem::path& folder);

}  // namespace tempera::adapt
