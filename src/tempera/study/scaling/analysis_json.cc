#include <cmath>
#include <nlohmann/json.hpp>

#include "tempera/study/scaling/analysis.h"

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no number for "no size reaches it".
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json to_json(const Interval& interval) {
  return {{"value", finite(interval.value)},
          {"low", finite(interval.low)},
          {"high", finite(interval.high)}};
}

Json to_json(const Saving& saving) {
  Json json = to_json(saving.interval);
  json["told"] = saving.told;
  json["extrapolated"] = saving.extrapolated;
  json["says"] = saving_text(saving);
  return json;
}

Json kind_json(const Cell& cell) {
  return {{"size", cell.shape.text()},
          {"parameters", cell.shape.parameters()},
          {"tokens", cell.tokens},
          {"context", cell.context},
          {"qk_norm", name_of(cell.qk_norm)},
          {"method", cell.method}};
}

Json to_json(const MethodLaw& law) {
  Json residuals = Json::array();
  for (const double residual : law.residuals) residuals.push_back(finite(residual));
  return {{"E", to_json(law.e)},
          {"A", to_json(law.a)},
          {"B", to_json(law.b)},
          {"alpha", to_json(law.alpha)},
          {"beta", to_json(law.beta)},
          {"spread", law.spread},
          {"residuals", std::move(residuals)}};
}

Json to_json(const Slice& slice, const std::vector<std::string>& methods) {
  Json cells = Json::array(), laws = Json::object(), savings = Json::object();
  for (size_t i = 0; i < slice.cells.size(); ++i)
    cells.push_back({{"size", slice.shapes[i].text()},
                     {"parameters", slice.cells[i].parameters},
                     {"tokens", slice.cells[i].tokens}});
  for (size_t m = 0; m < methods.size(); ++m) {
    laws[methods[m]] = slice.laws.laws[m] ? to_json(*slice.laws.laws[m]) : Json();
    if (slice.laws.savings[m])
      savings[methods[m]] = {{"parameters", to_json(slice.laws.savings[m]->parameters)},
                             {"tokens", to_json(slice.laws.savings[m]->tokens)}};
  }
  return {{"context", slice.context},
          {"qk_norm", name_of(slice.qk_norm)},
          {"cells", std::move(cells)},
          {"laws", std::move(laws)},
          {"at", {{"parameters", slice.laws.parameters}, {"tokens", slice.laws.tokens}}},
          {"resamples", slice.laws.resamples},
          {"share_of_the_first", std::move(savings)}};
}

}  // namespace

Json to_json(const Analysis& analysis) {
  Json json{{"methods", analysis.methods}, {"most_passes", analysis.most_passes}};
  for (const Slice& slice : analysis.slices)
    json["fits"].push_back(to_json(slice, analysis.methods));
  for (const auto& difference : analysis.differences) {
    Json row = kind_json(difference.cell);
    row["loss_less_the_first"] = difference.mean;
    row["half_width"] = difference.half_width;
    row["seeds"] = difference.seeds;
    json["differences"].push_back(std::move(row));
  }
  for (const auto& length : analysis.lengths) {
    Json row = kind_json(length.cell);
    row["lengths"] = length.lengths;
    row["losses"] = length.losses;
    row["recall"] = length.recall;
    json["lengths"].push_back(std::move(row));
  }
  for (const auto& gain : analysis.context_gains)
    json["by_context"].push_back({{"size", gain.shape.text()},
                                  {"tokens", gain.tokens},
                                  {"qk_norm", name_of(gain.qk_norm)},
                                  {"method", gain.method},
                                  {"contexts", gain.contexts},
                                  {"loss_less_the_first", gain.differences},
                                  {"for_each_doubling", gain.slope},
                                  {"half_width", gain.half_width}});
  for (const auto& task : analysis.tasks) {
    Json row = kind_json(task.cell);
    row["task"] = task.task;
    row["metric"] = task.metric;
    row["mean"] = task.mean;
    row["half_width"] = task.half_width;
    json["tasks"].push_back(std::move(row));
  }
  json["entropy_and_growth"] =
      analysis.entropy_correlation ? to_json(*analysis.entropy_correlation) : Json();
  json["failures"] = Json::array();
  for (const auto& failure : analysis.failures)
    json["failures"].push_back({{"model", failure.job.label()},
                                {"outcome", name_of(failure.outcome)},
                                {"reason", failure.reason}});
  return json;
}

}  // namespace tempera::study::scaling
