#include "tempera/study/scaling/job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/data/random.h"

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPurposes = {std::pair(Purpose::kSweep, "sweep"),
                                  std::pair(Purpose::kCheck, "check"),
                                  std::pair(Purpose::kCell, "cell")};
constexpr std::array kOutcomes = {
    std::pair(Outcome::kDone, "done"), std::pair(Outcome::kDiverged, "diverged"),
    std::pair(Outcome::kOutOfMemory, "out of memory"), std::pair(Outcome::kLost, "lost")};

template <class Table, class Value>
const char* name_in(const Table& table, Value value) {
  return std::ranges::find(table, value, [](const auto& entry) { return entry.first; })->second;
}

template <class Table>
auto value_in(const Table& table, const std::string& name) {
  for (const auto& [value, known] : table)
    if (name == known) return value;
  throw Error(concat("'", name, "' is unknown"));
}

}  // namespace

std::string Job::id() const {
  const std::string all = to_json(*this).dump();
  std::string method = cell.method;
  for (char& c : method)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  std::array<char, 17> hash;
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(data::derive_seed(0, all)));
  return concat(cell.shape.text(), "-c", cell.context, "-", method.substr(0, 60), "-t",
                quantity_text(static_cast<double>(cell.tokens)), "-s", cell.seed, "-",
                std::string(hash.data()).substr(0, 10));
}

std::string Job::label() const {
  const std::string what = purpose == Purpose::kCell
                               ? concat("seed ", cell.seed)
                               : concat(name_in(kPurposes, purpose), " ", learning_rate);
  return concat(cell.shape.text(), " ", cell.method, " ",
                quantity_text(static_cast<double>(cell.tokens)), " tokens ", what);
}

const char* name_of(Outcome outcome) { return name_in(kOutcomes, outcome); }

Json to_json(const Job& job) {
  const Cell& cell = job.cell;
  return {{"purpose", name_in(kPurposes, job.purpose)},
          {"cell",
           {{"layers", cell.shape.layers},
            {"width", cell.shape.width},
            {"heads", cell.shape.heads},
            {"context", cell.context},
            {"qk_norm", name_of(cell.qk_norm)},
            {"method", cell.method},
            {"tokens", cell.tokens},
            {"step_tokens", cell.step_tokens},
            {"dtype", cell.dtype == config::Dtype::kBfloat16 ? "bf16" : "fp32"},
            {"seed", cell.seed}}},
          {"learning_rate", job.learning_rate}};
}

Job job_of(const Json& json) {
  const Json& cell = json.at("cell");
  return {.purpose = value_in(kPurposes, json.at("purpose")),
          .cell = {.shape = {.layers = cell.at("layers"),
                             .width = cell.at("width"),
                             .heads = cell.at("heads")},
                   .context = cell.at("context"),
                   .qk_norm = qk_norm_of(cell.at("qk_norm")),
                   .method = cell.at("method"),
                   .tokens = cell.at("tokens"),
                   .step_tokens = cell.at("step_tokens"),
                   .dtype = cell.at("dtype") == "bf16" ? config::Dtype::kBfloat16
                                                       : config::Dtype::kFloat32,
                   .seed = cell.at("seed")},
          .learning_rate = json.at("learning_rate")};
}

std::optional<double> JobResult::loss() const {
  if (outcome != Outcome::kDone || losses.empty()) return std::nullopt;
  return losses.front().loss;
}

Json to_json(const JobResult& result) {
  Json json = to_json(result.job);
  json["id"] = result.job.id();
  json["parameters"] = result.job.cell.shape.parameters();
  json["outcome"] = name_of(result.outcome);
  json["reason"] = result.reason;
  json["steps"] = result.steps;
  json["trained_tokens"] = result.tokens;
  json["micro_batch"] = result.micro_batch;
  json["temperature_parameters"] = result.temperature_parameters;
  json["seconds"] = result.seconds;
  json["passes"] = result.passes;
  json["losses"] = Json::array();
  for (const auto& [length, loss] : result.losses)
    json["losses"].push_back({{"length", length}, {"loss", loss}});
  json["recall"] = Json::array();
  for (const auto& [length, accuracy] : result.recall)
    json["recall"].push_back({{"length", length}, {"accuracy", accuracy}});
  json["tasks"] = Json::array();
  for (const auto& task : result.tasks)
    json["tasks"].push_back({{"task", task.task},
                             {"metric", task.metric},
                             {"value", task.value},
                             {"low", task.low},
                             {"high", task.high}});
  json["entropy"] = result.entropy ? Json(*result.entropy) : Json();
  json["curve"] = result.curve;
  json["build"] = result.build;
  return json;
}

JobResult result_of(const Json& json, const std::string& file) {
  try {
    JobResult result{.job = job_of(json),
                     .outcome = value_in(kOutcomes, json.at("outcome")),
                     .reason = json.at("reason"),
                     .steps = json.at("steps"),
                     .tokens = json.at("trained_tokens"),
                     .micro_batch = json.at("micro_batch"),
                     .temperature_parameters = json.at("temperature_parameters"),
                     .seconds = json.at("seconds"),
                     .passes = json.at("passes"),
                     .curve = json.at("curve"),
                     .losses = {},
                     .recall = {},
                     .tasks = {},
                     .entropy = {},
                     .build = json.at("build")};
    for (const Json& row : json.at("losses"))
      result.losses.push_back({row.at("length"), row.at("loss")});
    for (const Json& row : json.at("recall"))
      result.recall.push_back({row.at("length"), row.at("accuracy")});
    for (const Json& row : json.at("tasks"))
      result.tasks.push_back(
          {row.at("task"), row.at("metric"), row.at("value"), row.at("low"), row.at("high")});
    if (const Json& entropy = json.at("entropy"); entropy.is_number())
      result.entropy = entropy.get<double>();
    return result;
  } catch (const std::exception& error) {
    throw Error(concat(file, " is not the result of a job: ", error.what(),
                       "; remove it, and the model is trained again"));
  }
}

}  // namespace tempera::study::scaling
