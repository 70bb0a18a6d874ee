#include "tempera/study/scaling/estimate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;

// A model is measured at four lengths, where a forward pass is a third of a step's products and a
// longer row costs more; the rates that are tried, at one.
constexpr double kCellPasses = 6, kTrialPasses = 1;
// Numbers of 4 bytes that a row of a layer leaves for the way back, in widths.
constexpr double kWidthsKept = 34;
// Of the output, computed in pieces.
constexpr int64_t kLogitRows = 4096;

double as_double(int64_t value) { return static_cast<double>(value); }

}  // namespace

double memory_estimate(const Cell& cell, int64_t vocabulary) {
  const double weights = as_double(cell.shape.parameters() + vocabulary * cell.shape.width);
  const double bytes = cell.dtype == config::Dtype::kBfloat16 ? 2 : 4;
  const double rows = as_double(cell.step_tokens);
  const double kept = bytes * kWidthsKept * rows * as_double(cell.shape.width * cell.shape.layers);
  const double logits = 8 * as_double(vocabulary) * std::min(rows, as_double(kLogitRows));
  return 16 * weights + kept + logits;
}

double Speeds::seconds(const Job& job, const StudyData& data) const {
  const double passes = job.purpose == Purpose::kCell ? kCellPasses : kTrialPasses;
  return seconds_per_token(job.cell) *
         (as_double(job.cell.tokens) + passes * as_double(data.eval_tokens) / 3);
}

std::string Speeds::dump(int64_t workers, const std::string& device) const {
  Json list = Json::array();
  for (const auto& [key, seconds] : seconds_) {
    const auto& [shape, context, dtype] = key;
    list.push_back({{"shape", {shape.layers, shape.width, shape.heads}},
                    {"context", context},
                    {"bf16", dtype == config::Dtype::kBfloat16},
                    {"seconds_per_token", seconds}});
  }
  return Json{{"workers", workers}, {"device", device}, {"speeds", list}}.dump(1) + "\n";
}

void Speeds::load(const std::string& text, int64_t workers, const std::string& device) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("workers", int64_t{0}) != workers ||
      json.value("device", "") != device)
    return;
  try {
    for (const Json& row : json.at("speeds")) {
      const auto shape = row.at("shape").get<std::vector<int64_t>>();
      const auto dtype =
          row.at("bf16").get<bool>() ? config::Dtype::kBfloat16 : config::Dtype::kFloat32;
      seconds_[{Shape{shape.at(0), shape.at(1), shape.at(2)}, row.at("context").get<int64_t>(),
                dtype}] = row.at("seconds_per_token");
    }
  } catch (const std::exception&) {
    seconds_.clear();  // they are measured again
  }
}

}  // namespace tempera::study::scaling
