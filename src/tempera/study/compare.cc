#include "tempera/study/compare.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/base/version.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/study/job.h"
#include "tempera/study/statistics.h"
#include "tempera/temperature/registry.h"
#include "tempera/train/run_folder.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kLargestResult = 64 << 20;

struct Work {
  NamedMethod method;
  int64_t seed;
  fs::path file;  // of its result
};

fs::path result_file(const fs::path& out, const NamedMethod& method, int64_t seed) {
  std::string name = method.label;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '=') c = '_';
  return out / "jobs" / concat(name, "-seed", seed, ".json");
}

// Whether the folder is new. One with other settings is refused.
bool check_folder(const CompareSettings& settings, const fs::path& out) {
  const fs::path file = out / "settings.json";
  if (!fs::exists(file)) {
    TEMPERA_CHECK(!fs::exists(out) || fs::is_empty(out) || fs::exists(out / "lock"), out.string(),
                  ": the folder holds something else; give another with --out");
    return true;
  }
  const auto stored = config::describe(config::from_json<CompareSettings>(
      Json::parse(read_file(file, kLargestResult)), file.string()));
  const auto differences = config::differences(config::describe(settings), stored);
  if (!differences.empty())
    throw UsageError(concat(out.string(), " holds a comparison with other settings:\n",
                            config::to_text(differences),
                            "give another folder with --out, or remove this one"));
  return false;
}

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

std::vector<NamedMethod> parse_methods(const CompareSettings& settings) {
  std::vector<NamedMethod> methods;
  for (const auto& text : settings.methods) {
    methods.push_back(parse_method(text));
    for (size_t i = 0; i + 1 < methods.size(); ++i)
      if (methods[i].label == text) throw UsageError(concat("--methods: ", text, " given twice"));
  }
  if (methods.empty()) throw UsageError("--methods: none given; see `tempera methods`");
  return methods;
}

// Runs the jobs over threads of their own, each of which computes alone: small models gain nothing
// from more.
class Pool {
 public:
  Pool(const CompareSettings& settings, const train::DataSource& source, std::vector<Work> work)
      : settings_(settings),
        source_(source),
        work_(std::move(work)),
        shares_(work_.size()),
        progress_("compare", static_cast<int64_t>(work_.size()) * 1000, "‰") {}

  void run(int64_t threads) {
    std::vector<std::thread> pool;
    for (int64_t i = 0; i < std::min<int64_t>(threads, static_cast<int64_t>(work_.size())); ++i)
      pool.emplace_back([this] { serve(); });
    for (auto& thread : pool) thread.join();
    progress_.finish();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void serve() {
    at::set_num_threads(1);
    for (size_t i = next_++; i < work_.size() && !stopping_; i = next_++) {
      try {
        one(i);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        stopping_ = true;
      }
    }
  }

  void one(size_t index) {
    const Work& work = work_[index];
    const auto seed = static_cast<uint64_t>(settings_.training.seed + work.seed);
    const auto dataset = source_.dataset(settings_.model.context, seed, settings_.model.kind);
    Job job{.model = model_for(settings_, source_, work.method, *dataset),
            .training = settings_.training,
            .seed = seed,
            .translator = settings_.data.source.empty() ? nullptr : source_.text_tokenizer()};
    job.training.seed += work.seed;
    job.training.eval_rows = 0;  // the held-out sets are scored at the end
    Json result = run_job(job, dataset, [&](double share) { report(index, share); });
    write_file(work.file, result.dump() + "\n");
  }

  void report(size_t index, double share) {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error("stopped");
    if (const int signal = InterruptGuard::signal())
      throw Interrupted(signal, "interrupted; finished models are kept, the same command goes on");
    shares_[index] = share;
    double done = 0;
    for (const double s : shares_) done += s;
    progress_.update(static_cast<int64_t>(done * 1000),
                     concat(work_[index].method.label, " seed ", work_[index].seed));
  }

  const CompareSettings& settings_;
  const train::DataSource& source_;
  const std::vector<Work> work_;
  std::vector<double> shares_;
  std::mutex mutex_;
  Progress progress_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopping_ = false;
  std::exception_ptr error_;
};

Json summary(const std::vector<double>& values) {
  return {{"mean", mean(values)},
          {"sd", standard_deviation(values)},
          {"ci95", confidence_half_width(values)},
          {"seeds", values}};
}

// {metric: {size: summary}} of one method over its seeds.
Json summarise(const std::vector<Json>& jobs) {
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
  for (const char* extra : {"answer_weight", "query_scale", "bleu", "chrf"})
    if (Json values = gather(extra, 1); !values.is_null()) result[extra] = std::move(values);
  if (Json values = gather("f1_macro", 100); !values.is_null())
    result["f1_macro"] = std::move(values);
  Json curves = Json::array();
  std::vector<double> seconds;
  for (const Json& job : jobs) {
    curves.push_back(job.at("loss_curve"));
    seconds.push_back(job.at("seconds").get<double>());
  }
  result["loss_curves"] = std::move(curves);
  result["train_seconds"] = summary(seconds);
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

Json collect(const CompareSettings& settings, const std::vector<Work>& work) {
  Json results = Json::object();
  for (const auto& text : settings.methods) {
    std::vector<Json> jobs;
    for (const Work& w : work)
      if (w.method.label == text) jobs.push_back(Json::parse(read_file(w.file, kLargestResult)));
    results[text] = summarise(jobs);
  }
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

NamedMethod parse_method(const std::string& text) {
  NamedMethod method{.label = text, .temperature = {}};
  size_t end = text.find(':');
  method.temperature.method = text.substr(0, end);
  MethodOptions given;
  while (end != std::string::npos) {
    const size_t begin = end + 1;
    end = text.find(':', begin);
    const std::string pair = text.substr(begin, end == std::string::npos ? end : end - begin);
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(concat("--methods: '", pair, "' in '", text, "'; OPTION=VALUE expected"));
    given[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  method_specs(method.temperature.method, given, Origin::kScratch);  // throws for what is unknown
  method.temperature.options = std::move(given);
  return method;
}

namespace {

// The data, after it was seen to suit every model. Bad input leaves no trace in a new folder.
train::DataSource open_data(const CompareSettings& settings,
                            const std::vector<NamedMethod>& methods, train::FolderLock& lock) {
  const fs::path out = settings.out;
  const bool fresh = check_folder(settings, out);
  try {
    train::DataSource source(settings.data, out / "data", [](int64_t) {});
    const auto dataset = source.dataset(settings.model.context, 0, settings.model.kind);
    for (const auto& method : methods) model_for(settings, source, method, *dataset);
    if (fresh) {
      fs::create_directories(out / "jobs");
      write_file(out / "settings.json", config::to_json(config::describe(settings)).dump(2) + "\n");
    }
    return source;
  } catch (...) {
    if (fresh) {
      fs::remove_all(out / "data");
      lock.undo();
    }
    throw;
  }
}

}  // namespace

Json compare(const CompareSettings& settings) {
  const fs::path out = settings.out;
  const auto methods = parse_methods(settings);
  settings.data.validate();
  settings.training.validate();
  train::FolderLock lock(out);
  const auto source = open_data(settings, methods, lock);
  std::vector<Work> all, left;
  for (int64_t seed = 0; seed < settings.seeds; ++seed)
    for (const auto& method : methods)
      all.push_back({method, seed, result_file(out, method, seed)});
  for (const auto& work : all)
    if (!fs::exists(work.file)) left.push_back(work);
  if (!left.empty()) {
    const InterruptGuard guard;
    const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
    Pool(settings, source, left).run(settings.threads > 0 ? settings.threads : cores);
  }
  Json results = collect(settings, all);
  write_file(out / "results.json", results.dump(1) + "\n");
  write_report(results, out / "report.html");
  return results;
}

}  // namespace tempera::study
