#include "tempera/study/compare.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/version.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/models/device.h"
#include "tempera/study/folder.h"
#include "tempera/study/pool.h"
#include "tempera/study/probe.h"
#include "tempera/study/statistics.h"
#include "tempera/train/run_folder.h"
#include "tempera/train/trainer.h"

namespace tempera::study {
namespace {

// Of the models, and of the rows that they are measured on.
int64_t context_of(const CompareSettings& settings) {
  return std::max(settings.model.context, train::longest_stage(settings.training));
}

// The model of one method, with what the data says about it.
nn::ModelConfig model_for(const CompareSettings& settings, const train::DataSource& source,
                          const NamedMethod& method, const data::Dataset& dataset) {
  nn::ModelConfig model = settings.model;
  model.temperature = method.temperature;
  model.context = context_of(settings);
  source.complete(model, dataset);
  model.validate();
  data::check_fits(dataset, {.vocabulary = model.vocabulary,
                             .classes = model.output_count(),
                             .max_length = model.max_length()});
  return model;
}

bool is_text(const CompareSettings& settings) { return !settings.data.text.empty(); }

bool on_gpu(const CompareSettings& settings) {
  return models::resolve_device(settings.training.device).is_cuda();
}

// While one thread records a graph of the GPU's work, no other may give it any.
int64_t worker_count(const CompareSettings& settings, const dist::World& world) {
  return on_gpu(settings) ? 1 : workers(settings.threads, world);
}

Comparison comparison_of(const CompareSettings& settings, const train::DataSource& source) {
  constexpr double kTenMinutes = 600;
  const int64_t held_out = source.held_out_tokens();
  int64_t model_tokens = settings.training.tokens;
  for (const auto& stage : settings.training.stage_list()) model_tokens += stage.tokens;
  return {.seconds = settings.seconds > 0 ? settings.seconds : kTenMinutes,
          .methods = static_cast<int64_t>(settings.methods.size()),
          .vocabulary = source.vocabulary(),
          .train_tokens = source.text_tokens() - held_out,
          .held_out_tokens = held_out,
          .eval_tokens = settings.eval_tokens,
          .past_trained = settings.model.kind == nn::ModelKind::kDecoder &&
                          settings.model.position != nn::PositionKind::kLearned,
          .model_tokens = model_tokens,
          .given = settings.given};
}

void set_size(CompareSettings& settings, const Size& size) {
  settings.seeds = size.seeds;
  settings.model.layers = size.layers;
  settings.model.width = size.width;
  settings.model.heads = size.heads;
  settings.model.context = size.context;
  settings.training.batch = size.batch;
  settings.training.steps = size.steps;
  settings.training.schedule.warmup = size.warmup;
  settings.training.optimizer.learning_rate = size.learning_rate;
}

constexpr const char* kNothingDone = "interrupted before the training began: nothing was written";

// How fast models of this size learn here, while all ranks train some.
double measured_speed(CompareSettings settings, const train::DataSource& source, const Size& size,
                      dist::World& world) {
  set_size(settings, size);
  const auto dataset = source.dataset(size.context, 0, settings.model.kind);
  Probe probe{.models = {},
              .training = settings.training,
              .dataset = dataset,
              .workers = worker_count(settings, world)};
  for (const auto& method : parse_methods(settings.methods))
    probe.models.push_back(model_for(settings, source, method, *dataset));
  const auto sum = world.sums({seconds_per_token(probe)})[0];
  if (const int signal = world.any_signal(InterruptGuard::signal()))
    throw Interrupted(signal, kNothingDone);
  return sum / static_cast<double>(world.size());
}

// The size that a comparison on text has, kept in a file: one that goes on is not sized again.
Sizing sized(CompareSettings& settings, const train::DataSource& source,
             const std::filesystem::path& file, dist::World& world) {
  const bool is_kept = world.is_first() && std::filesystem::exists(file);
  if (const auto text = world.from_first(is_kept ? read_json(file).dump() : ""); !text.empty()) {
    auto kept = read_as<Sizing>(Json::parse(text), file.string());
    check_chosen(kept.size, settings.given, settings.out);
    set_size(settings, kept.size);
    return kept;
  }
  Comparison comparison = comparison_of(settings, source);
  const auto own = static_cast<double>(worker_count(settings, world));
  comparison.workers = std::llround(world.sums({own})[0]);
  if (world.is_first()) std::cerr << "compare: measuring how fast this machine trains\n";
  const Plan plan = fit(
      comparison, [&](const Size& size) { return measured_speed(settings, source, size, world); });
  set_size(settings, plan.size);
  return sizing_of(plan, comparison);
}

JobResult compare_job(const CompareSettings& settings, const train::DataSource& source,
                      const NamedMethod& method, int64_t index, const ReportStep& report) {
  const auto seed = static_cast<uint64_t>(settings.training.seed + index);
  const auto kind = settings.model.kind;
  const int64_t context = context_of(settings);
  const auto dataset = source.dataset(context, seed, kind);
  Job job{
      .model = model_for(settings, source, method, *dataset),
      .rows =
          [&, dataset, staged = !settings.training.stages.empty()](size_t stage, int64_t length) {
            return staged ? source.dataset(length, seed + stage, kind) : dataset;
          },
      .training = settings.training,
      .seed = seed,
      .translator = settings.data.source.empty() ? nullptr : source.text_tokenizer()};
  if (is_text(settings)) {
    job.eval_tokens = settings.eval_tokens;
    for (const int64_t length : measured_lengths(comparison_of(settings, source), context))
      if (length > context) job.longer.push_back(source.dataset(length, seed, kind));
  }
  job.training.seed += index;
  job.training.eval_rows = 0;  // the held-out sets are scored at the end
  return run_job(job, dataset, report);
}

// Over the seeds, by size; none where the sets do not have the number.
template <class Number>
Metric gather(const std::vector<JobResult>& jobs, const Number& number) {
  Metric metric;
  for (size_t set = 0; set < jobs.front().sets.size(); ++set) {
    std::vector<double> values;
    for (const JobResult& job : jobs) {
      const std::optional<double> value = number(job.sets.at(set));
      if (!value) return {};
      values.push_back(*value);
    }
    entry(metric, std::to_string(jobs.front().sets[set].size)) = summarise(std::move(values));
  }
  return metric;
}

Metric gather(const std::vector<JobResult>& jobs, std::optional<double> SetResult::*number) {
  return gather(jobs, [&](const SetResult& set) { return set.*number; });
}

MethodResults summarise_jobs(const std::vector<JobResult>& jobs) {
  constexpr double kPercent = 100;
  MethodResults result{
      .accuracy = gather(jobs, [](const SetResult& set) { return kPercent * set.accuracy; }),
      .loss = gather(jobs, [](const SetResult& set) { return set.loss; }),
      .answer_weight = gather(jobs, &SetResult::answer_weight),
      .answer_entropy = gather(jobs, &SetResult::answer_entropy),
      .query_scale = gather(jobs,
                            [](const SetResult& set) {
                              return set.query_scale ? std::optional(mean(*set.query_scale))
                                                     : std::nullopt;
                            }),
      .bleu = gather(jobs, &SetResult::bleu),
      .chrf = gather(jobs, &SetResult::chrf),
      .f1_macro = gather(jobs,
                         [](const SetResult& set) {
                           return set.f1_macro ? std::optional(kPercent * *set.f1_macro)
                                               : std::nullopt;
                         }),
      .loss_curves = {},
      .train_seconds = {},
      .cpu_seconds = {},
      .parameters = jobs.front().parameters,
      .temperature_parameters = jobs.front().temperature_parameters,
      .steps = jobs.front().steps,
      .tokens = jobs.front().tokens};
  std::vector<double> seconds, cpu_seconds;
  for (const JobResult& job : jobs) {
    result.loss_curves.push_back(job.loss_curve);
    seconds.push_back(job.seconds);
    cpu_seconds.push_back(job.cpu_seconds);
  }
  result.train_seconds = summarise(std::move(seconds));
  result.cpu_seconds = summarise(std::move(cpu_seconds));
  return result;
}

// p-values of the paired test of each method against the first, per size.
void add_tests(ByName<MethodResults>& methods) {
  for (const auto metric : {&MethodResults::accuracy, &MethodResults::loss, &MethodResults::bleu,
                            &MethodResults::chrf, &MethodResults::f1_macro})
    for (size_t i = 1; i < methods.size(); ++i)
      for (auto& [size, summary] : methods[i].value.*metric)
        summary.p_against_first =
            paired_p_value(summary.seeds, entry(methods[0].value.*metric, size).seeds);
}

Results collect(const CompareSettings& settings, const std::vector<std::vector<JobResult>>& jobs) {
  Results results{.tempera = std::string(version()),
                  .task = settings.data.task.value_or(!settings.data.source.empty() ? "translation"
                                                      : !settings.data.labelled.empty() ? "classes"
                                                                                        : "text"),
                  .seeds = settings.seeds,
                  .settings = config::to_json(config::describe(settings)),
                  .methods = {},
                  .sizing = {}};
  for (size_t i = 0; i < jobs.size(); ++i)
    results.methods.push_back({settings.methods[i], summarise_jobs(jobs[i])});
  add_tests(results.methods);
  return results;
}

train::DataSource open_data(const train::DataOptions& data, const std::filesystem::path& shards) {
  train::DataSource source(data, shards, [&](int64_t) { stop_if_interrupted(kNothingDone); });
  stop_if_interrupted(kNothingDone);
  return source;
}

}  // namespace

plot::HtmlReport report_of_comparison(const std::filesystem::path& folder) {
  if (std::filesystem::is_regular_file(folder / "results.json"))
    return page_of(read_result<Results>(folder / "results.json"));
  const auto mark = folder / WorkFolder::kMark;
  auto settings =
      config::from_json<CompareSettings>(train::mark_in(mark, "compare").settings, mark.string());
  if (const auto size = folder / "sizing.json"; std::filesystem::is_regular_file(size))
    set_size(settings, read_result<Sizing>(size).size);
  const auto jobs =
      finished_seeds<JobResult>(parse_methods(settings.methods), settings.seeds, folder);
  TEMPERA_CHECK(!jobs.front().empty(), "'", folder.string(),
                "' has no results.json, and no seed is done for every method; run the same command "
                "again to go on");
  const int64_t asked = std::exchange(settings.seeds, static_cast<int64_t>(jobs.front().size()));
  return page_of(collect(settings, jobs), concat("Not finished: ", settings.seeds, " of ", asked,
                                                 " seeds are done for every method. "));
}

CompareSettings::CompareSettings()
    : training(train::task_training()), model(nn::phonebook_model()) {
  data.task = "phonebook";
  model.vocabulary = model.outputs = 0;  // the data says
}

void CompareSettings::declare(config::Options& options) {
  options.section(config::Section::kTemperature);
  options.option("methods", methods,
                 "methods to compare: NAME, A+B for a product, or NAME:OPTION=VALUE; the first is "
                 "the baseline");
  options.section(config::Section::kTraining);
  options.option("seeds", seeds, config::range(1, 10000),
                 "models per method; all methods use the same seeds");
  options.option(
      "seconds", seconds, config::range(0, 1e9),
      "on text: time budget for the whole comparison, which sets model size, steps and seeds "
      "unless given; 0: 600");
  options.option("eval-tokens", eval_tokens, config::range(2, 1e15),
                 "on text: held-out tokens to measure per length",
                 {.section = config::Section::kMeasuring});
  config::out_option(options, out);
  config::fresh_option(options, fresh);
  config::threads_option(options, threads);
  config::json_option(options, json);
  data.declare(options);
  if (data.has_files() && data.task == "phonebook") {
    // The built-in task is only the default: files replace it, and its model with it.
    data.task.reset();
    model = nn::ModelConfig{};
    training = train::TrainOptions{};
    if (!data.text.empty()) {
      Size size = default_size();
      size.seeds = seeds;
      set_size(*this, size);
    }
    if (!data.source.empty()) model.kind = nn::ModelKind::kEncoderDecoder;
    if (!data.labelled.empty()) model.kind = nn::ModelKind::kEncoder;
  }
  training.declare(options, /*with_seconds=*/false);
  model.declare_model(options);
  note_given(options);
}

void CompareSettings::note_given(const config::Options& options) {
  const auto note = [&](const char* name, auto& field, const auto& value) {
    field.reset();
    if (!options.find(name)->origin.empty()) field = value;
  };
  note("seeds", given.seeds, seeds);
  note("layers", given.layers, model.layers);
  note("width", given.width, model.width);
  note("heads", given.heads, model.heads);
  note("context", given.context, model.context);
  note("batch", given.batch, training.batch);
  note("steps", given.steps, training.steps);
  note("warmup", given.warmup, training.schedule.warmup);
  note("learning-rate", given.learning_rate, training.optimizer.learning_rate);
  if (given.steps == 0) given.steps.reset();
}

void CompareSettings::validate() const {
  parse_methods(methods);
  data.validate();
  training.validate();
  train::check_stages(training, data);
  if (seconds > 0 && !is_text(*this))
    throw UsageError(concat("--seconds: ", seconds,
                            " given; only comparisons on text are fitted to a time. Give --steps "
                            "and --seeds"));
}

std::optional<Results> compare(const CompareSettings& given, const std::string& verb,
                               dist::World& world) {
  dist::check_agreement(world, dist::properties_of(config::describe(given)));
  std::optional<StudyFolder> folder;
  std::optional<train::DataSource> source;
  world.first([&] {
    folder.emplace(given.out, verb, config::describe(given), declare_fresh<CompareSettings>,
                   given.fresh);
    source.emplace(open_data(given.data, folder->data_path()));
  });
  if (!folder) source.emplace(train::read_first_data(given.data, given.out));
  world.await_all();
  CompareSettings settings = given;
  const auto plan_file = std::filesystem::path(given.out) / "sizing.json";
  std::optional<Sizing> sizing;
  if (is_text(given)) sizing = sized(settings, *source, plan_file, world);
  const auto methods = parse_methods(given.methods);
  const auto dataset = source->dataset(context_of(settings), 0, settings.model.kind);
  for (const auto& method : methods)
    model_for(settings, *source, method, *dataset);  // throws if unfit
  if (folder) folder->keep();
  if (folder && sizing) {
    write_file(plan_file, as_json(*sizing).dump(1) + "\n");
    for (const auto& line : sizing->says) std::cerr << "  " << line << "\n";
  }
  const MethodGrid<JobResult> grid{
      .title = "compare",
      .methods = methods,
      .seeds = settings.seeds,
      .threads = worker_count(settings, world),
      .make = [&](const NamedMethod& method, int64_t seed, const auto& report) {
        return compare_job(settings, *source, method, seed, report);
      }};
  const auto jobs = run_grid(grid, given.out, world);
  if (!folder) return std::nullopt;
  Results results = collect(settings, jobs);
  results.sizing = std::move(sizing);
  write_file(folder->path() / "results.json", as_json(results).dump(1) + "\n");
  write_report(results, folder->path() / "report.html");
  return results;
}

}  // namespace tempera::study
