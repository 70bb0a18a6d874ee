#include "tempera/train/history.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

// 0 where there is no such number.
double number_in(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return 0;
  const Json& value = object[name];
  return value.is_number() ? value.get<double>() : 0;
}

// The median of a layer's heads is the middle of five quantiles.
void add_median(std::vector<std::pair<std::string, LoggedCurve>>& curves, const Json& layer,
                const char* what, double step) {
  if (!layer.is_object() || !layer.contains("layer") || !layer["layer"].is_string() ||
      !layer.contains(what))
    return;
  const Json& quantiles = layer[what];
  if (!quantiles.is_array() || quantiles.size() != 5) return;
  const auto name = layer["layer"].get<std::string>();
  auto found = std::ranges::find(curves, name, &std::pair<std::string, LoggedCurve>::first);
  if (found == curves.end()) found = curves.insert(curves.end(), {name, {}});
  found->second.add(step, quantiles[2]);
}

void add_watched(RunHistory& history, const Json& line, double step) {
  const auto watched = line.find("watched");
  if (watched == line.end() || !watched->is_object() || !watched->contains("layers")) return;
  for (const Json& layer : (*watched)["layers"]) {
    add_median(history.temperature, layer, "temperature", step);
    add_median(history.entropy, layer, "entropy", step);
  }
}

void add_line(RunHistory& history, const Json& line) {
  if (!line["step"].is_number()) return;
  const auto step = line["step"].get<double>();
  if (line.contains("validation_loss")) {
    history.validation.add(step, line["validation_loss"]);
    history.last_validation_was_finite = line["validation_loss"].is_number();
    return;
  }
  const auto add = [&](LoggedCurve& curve, const char* name) {
    if (line.contains(name)) curve.add(step, line[name]);
  };
  add(history.loss, "loss");
  add(history.learning_rate, "learning_rate");
  add(history.gradient_norm, "gradient_norm");
  add(history.speed, "tokens_per_second");
  add_watched(history, line, step);
  history.step = step;
  history.tokens = number_in(line, "tokens");
  history.seconds = number_in(line, "seconds");
  if (line.contains("progress") && line["progress"].is_number())
    history.progress = line["progress"].get<double>();
}

// The largest share of a budget that is spent. Stages have budgets of their own.
std::optional<double> spent(const RunHistory& history) {
  const Json& settings = history.mark.settings;
  double share = 0;
  bool known = false;
  for (const auto& [name, done] :
       {std::pair("steps", history.step), {"tokens", history.tokens}, {"seconds", history.seconds}})
    if (const double budget = number_in(settings, name); budget > 0) {
      share = std::max(share, done / budget);
      known = true;
    }
  return known ? std::optional(std::min(share, 1.0)) : std::nullopt;
}

}  // namespace

void LoggedCurve::add(double step, const Json& value) {
  if (!value.is_number()) return;
  steps.push_back(step);
  values.push_back(value.get<double>());
}

LoggedCurve thinned(const LoggedCurve& curve, size_t most) {
  const size_t together = (curve.steps.size() + most - 1) / most;
  if (together <= 1) return curve;
  LoggedCurve thin;
  for (size_t begin = 0; begin < curve.steps.size(); begin += together) {
    const size_t end = std::min(begin + together, curve.steps.size());
    double step = 0, value = 0;
    for (size_t i = begin; i < end; ++i) {
      step += curve.steps[i];
      value += curve.values[i];
    }
    const auto count = static_cast<double>(end - begin);
    thin.steps.push_back(step / count);
    thin.values.push_back(value / count);
  }
  return thin;
}

RunHistory read_history(const fs::path& folder) {
  const fs::path mark = folder / WorkFolder::kMark, log = folder / "log.jsonl";
  TEMPERA_CHECK(fs::is_regular_file(mark), "'", folder.string(),
                "' is not the folder of a run: there is no run.json");
  RunHistory history{.mark = mark_in(mark, "train"),
                     .loss = {},
                     .learning_rate = {},
                     .gradient_norm = {},
                     .speed = {},
                     .validation = {}};
  // One that was stopped before its first step has none.
  if (fs::is_regular_file(log))
    for (const Json& line : read_log(log)) add_line(history, line);
  if (!history.progress) history.progress = spent(history);
  return history;
}

}  // namespace tempera::train
