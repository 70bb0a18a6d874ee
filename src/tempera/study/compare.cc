#include "tempera/study/compare.h"

#include <nlohmann/json.hpp>

#include "tempera/base/files.h"
#include "tempera/base/version.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/study/folder.h"
#include "tempera/study/job.h"
#include "tempera/study/statistics.h"
#include "tempera/study/tables.h"
#include "tempera/train/trainer.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

// The model of one method, with what the data says about it.
nn::ModelConfig model_for(const CompareSettings& settings, const train::DataSource& source,
                          const NamedMethod& method, const data::Dataset& dataset) {
  nn::ModelConfig model = settings.model;
  model.temperature = method.temperature;
  source.complete(model, dataset);
  model.validate();
  data::check_fits(dataset, {.vocabulary = model.vocabulary,
                             .classes = model.output_count(),
                             .max_length = model.max_length()});
  return model;
}

Json compare_job(const CompareSettings& settings, const train::DataSource& source,
                 const NamedMethod& method, int64_t index,
                 const std::function<void(double)>& report) {
  const auto seed = static_cast<uint64_t>(settings.training.seed + index);
  const auto dataset = source.dataset(settings.model.context, seed, settings.model.kind);
  Job job{.model = model_for(settings, source, method, *dataset),
          .training = settings.training,
          .seed = seed,
          .translator = settings.data.source.empty() ? nullptr : source.text_tokenizer()};
  job.training.seed += index;
  job.training.eval_rows = 0;  // the held-out sets are scored at the end
  return run_job(job, dataset, report);
}

// {metric: {size: summary}} of one method over its seeds.
Json summarise_jobs(const std::vector<Json>& jobs) {
  const auto gather = [&](const char* metric, double factor) {
    Json by_size = Json::object();
    const Json& sets = jobs.front().at("sets");
    for (size_t set = 0; set < sets.size(); ++set) {
      if (!sets[set].contains(metric)) return Json();
      std::vector<double> values;
      for (const Json& job : jobs) {
        const Json& value = job.at("sets").at(set).at(metric);
        values.push_back(factor * (value.is_array() ? mean(value.get<std::vector<double>>())
                                                    : value.get<double>()));
      }
      by_size[std::to_string(sets[set].at("size").get<int64_t>())] = summary(values);
    }
    return by_size;
  };
  Json result{{"accuracy", gather("accuracy", 100)}, {"loss", gather("loss", 1)}};
  for (const char* extra : {"answer_weight", "answer_entropy", "query_scale", "bleu", "chrf"})
    if (Json values = gather(extra, 1); !values.is_null()) result[extra] = std::move(values);
  if (Json values = gather("f1_macro", 100); !values.is_null())
    result["f1_macro"] = std::move(values);
  Json curves = Json::array();
  std::vector<double> seconds, cpu_seconds;
  for (const Json& job : jobs) {
    curves.push_back(job.at("loss_curve"));
    seconds.push_back(job.at("seconds").get<double>());
    cpu_seconds.push_back(job.at("cpu_seconds").get<double>());
  }
  result["loss_curves"] = std::move(curves);
  result["train_seconds"] = summary(seconds);
  result["cpu_seconds"] = summary(cpu_seconds);
  for (const char* count : {"parameters", "temperature_parameters", "steps", "tokens"})
    result[count] = jobs.front().at(count);
  return result;
}

// p-values of the paired test of each method against the first, per size.
void add_tests(Json& results) {
  const std::string base_name = results.begin().key();
  for (const char* metric : {"accuracy", "loss", "bleu", "chrf", "f1_macro"}) {
    if (!results.begin().value().contains(metric)) continue;
    const Json& base = results.begin().value().at(metric);
    for (auto& [method, result] : results.items()) {
      if (method == base_name) continue;
      for (auto& [size, row] : result.at(metric).items())
        row["p_against_first"] =
            paired_p_value(row.at("seeds").get<std::vector<double>>(),
                           base.at(size).at("seeds").get<std::vector<double>>());
    }
  }
}

Json collect(const CompareSettings& settings, const std::vector<std::vector<Json>>& jobs) {
  Json results = Json::object();
  for (size_t i = 0; i < jobs.size(); ++i) results[settings.methods[i]] = summarise_jobs(jobs[i]);
  add_tests(results);
  return {{"tempera", std::string(version())},
          {"task", settings.data.task.value_or(!settings.data.source.empty()     ? "translation"
                                               : !settings.data.labelled.empty() ? "classes"
                                                                                 : "text")},
          {"seeds", settings.seeds},
          {"settings", config::to_json(config::describe(settings))},
          {"results", results}};
}

}  // namespace

CompareSettings::CompareSettings()
    : training(train::task_training()), model(nn::phonebook_model()) {
  data.task = "phonebook";
  model.vocabulary = model.outputs = 0;  // the data says
}

void CompareSettings::declare(config::Options& options) {
  options.option(
      "methods", methods,
      "methods to compare, each NAME, A+B for a product, or NAME:OPTION=VALUE; the first is "
      "what the others are tested against");
  options.option("seeds", seeds, config::range(1, 10000),
                 "models a method, with the same seeds for all");
  config::out_option(options, out);
  config::threads_option(options, threads);
  config::json_option(options, json);
  data.declare(options);
  if (data.has_files() && data.task == "phonebook") {
    // The built-in task is only the default: files replace it, and its model with it.
    data.task.reset();
    model = nn::ModelConfig{};
    training = train::TrainOptions{};
    if (!data.source.empty()) model.kind = nn::ModelKind::kEncoderDecoder;
    if (!data.labelled.empty()) model.kind = nn::ModelKind::kEncoder;
  }
  training.declare(options);
  model.declare_model(options);
}

Json compare(const CompareSettings& settings) {
  const auto methods = parse_methods(settings.methods);
  settings.data.validate();
  settings.training.validate();
  StudyFolder folder(settings.out, config::describe(settings), declare_fresh<CompareSettings>);
  const train::DataSource source(settings.data, folder.path() / "data", [](int64_t) {});
  const auto dataset = source.dataset(settings.model.context, 0, settings.model.kind);
  for (const auto& method : methods)
    model_for(settings, source, method, *dataset);  // throws if unfit
  folder.begin();
  // While one thread records a graph of the GPU's work, no other may give it any.
  const bool on_gpu = train::resolve_device(settings.training.device).is_cuda();
  const MethodGrid grid{.title = "compare",
                        .methods = methods,
                        .seeds = settings.seeds,
                        .threads = on_gpu ? 1 : settings.threads,
                        .make = [&](const NamedMethod& method, int64_t seed, const auto& report) {
                          return compare_job(settings, source, method, seed, report);
                        }};
  Json results = collect(settings, run_grid(grid, folder));
  write_file(folder.path() / "results.json", results.dump(1) + "\n");
  write_report(results, folder.path() / "report.html");
  return results;
}

}  // namespace tempera::study
