#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/base/version.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/data/checksum.h"
#include "tempera/eval/choice_task.h"
#include "tempera/study/folder.h"
#include "tempera/study/pool.h"
#include "tempera/study/scaling/made_text.h"
#include "tempera/study/scaling/measure.h"
#include "tempera/study/scaling/report.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kMadeBytes = 6'000'000;
constexpr const char* kMadeText = "made-text.txt";

struct ScalingSettings {
  std::vector<std::string> files;
  Given given;
  bool quick = false;
  bool keep_models = false;
  bool fresh = false;
  bool json = false;
  std::string out = "runs/scaling";
  config::Device device = config::Device::kAuto;
  RunOptions run;

  void declare(config::Options& options) {
    options.positional("files", files,
                       "grid files (TOML); each trains every combination of its lists");
    options.option("quick", quick,
                   "tiny grid: five sizes, two methods; without --text, on generated text");
    options.option("text", given.text, "text in place of what the files name");
    options.option("tasks", given.tasks,
                   "questions with choices, each NAME=FILE, in place of those that the files name");
    options.option("jobs", run.jobs, config::range(0, 1024),
                   "models at the same time, each in a process of its own; 0: one per core, 8 on a "
                   "GPU",
                   {.local = true, .section = config::Section::kComputing});
    options.option(
        "seconds", run.seconds, config::range(0, 1e9),
        "time limit of this call; models that do not fit wait for the next call, the least "
        "informative first; 0: none",
        {.local = true});
    options.option("save-seconds", run.save_seconds, config::above_to(0, 1e6),
                   "time between checkpoints of a model", {.local = true, .rare = true});
    options.option("keep-models", keep_models,
                   "keep the weights of finished models, not only their results", {.local = true});
    options.option("any-build", run.any_build,
                   "go on with results that another build of the program made",
                   {.local = true, .rare = true});
    config::out_option(options, out);
    config::fresh_option(options, fresh);
    config::device_option(options, device);
    config::json_option(options, json);
  }
};

void check_tasks(const StudyData& data) {
  for (const auto& given : data.tasks) {
    const size_t at = given.find('=');
    if (at == std::string::npos)
      throw UsageError(concat("tasks: '", given, "' given; NAME=FILE expected"));
    const auto* task = eval::find_choice_task(given.substr(0, at));
    if (!task) {
      std::string names;
      for (const auto& known : eval::choice_tasks())
        names += (names.empty() ? "" : ", ") + known.name;
      throw UsageError(
          concat("tasks: there is no task '", given.substr(0, at), "'; there are: ", names));
    }
    eval::read_examples(*task, given.substr(at + 1), data.task_limit);
  }
}

train::DataOptions options_of(const StudyData& data) {
  train::DataOptions options;
  options.text = data.text;
  options.tokenizer = data.tokenizer;
  options.held_out = data.held_out;
  return options;
}

train::DataSource open_source(const StudyData& data, const fs::path& shards) {
  int64_t total = 0;
  for (const auto& path : data.text) {
    std::error_code missing;  // reported by the conversion, with advice
    const auto size = fs::file_size(path, missing);
    total += missing ? 0 : static_cast<int64_t>(size);
  }
  Progress progress("tokenize", total, "bytes");
  return {
      options_of(data), shards, [&](int64_t bytes) {
        progress.update(bytes);
        stop_if_interrupted("interrupted before the training began; run the same command again");
      }};
}

// What the text is, to notice another one under the same name.
Json text_mark(const train::DataSource& source, int64_t context) {
  const auto rows = source.dataset(context, 0)->train(data::whole_batch(0, 8));
  return {{"tokens", source.text_tokens()},
          {"held_out_tokens", source.held_out_tokens()},
          {"vocabulary", source.vocabulary()},
          {"tokenizer", source.tokenizer().name},
          {"context", context},
          {"checksum", data::checksum(std::as_bytes(std::span(rows.tokens)))}};
}

void check_text(const train::DataSource& source, const Plan& plan, const fs::path& folder) {
  const fs::path file = folder / "text.json";
  if (!fs::exists(file)) {
    int64_t shortest = plan.cells.front().context;
    for (const Cell& cell : plan.cells) shortest = std::min(shortest, cell.context);
    write_file(file, text_mark(source, shortest).dump(1) + "\n");
    return;
  }
  const Json before = read_json(file);
  const Json now = text_mark(source, before.value("context", int64_t{1}));
  TEMPERA_CHECK(before == now, "the text is not the one that the study in '", folder.string(),
                "' began with; bring that back, or give another folder with --out");
}

int64_t longest_context(const Plan& plan) {
  int64_t longest = 0;
  for (const Cell& cell : plan.cells) longest = std::max(longest, cell.context);
  return longest;
}

// Throws where a model cannot be trained on this text.
void check_cells(const train::DataSource& source, const Plan& plan) {
  const int64_t longest = longest_context(plan);
  source.dataset(longest, 0);  // throws where it is longer than the text
  if (source.held_out_tokens() < longest)
    throw UsageError(concat("the text is too small: ", count_text(source.held_out_tokens()),
                            " tokens of it are held out, and models of a trained length of ",
                            count_text(longest),
                            " are measured in rows of that; give more text, a larger held-out "
                            "share or shorter contexts"));
}

// Of what models would learn by heart, and of what cannot be measured.
void warn_of(const train::DataSource& source, const Plan& plan) {
  const auto once = static_cast<double>(source.text_tokens() - source.held_out_tokens());
  const int64_t longest = longest_context(plan);
  double most = 0;
  for (const Cell& cell : plan.cells)
    most = std::max(most, static_cast<double>(cell.tokens) / once);
  if (most > kMostPasses)
    std::cerr << "warning: the longest training reads the text " << fixed(most, 1)
              << " times; above four a model learns it by heart. Give more text or fewer tokens\n";
  const auto lengths = measured_lengths(source, longest);
  if (lengths.size() < 4)
    std::cerr << "note: the held-out text is too short for rows of more than "
              << count_text(lengths.back()) << " tokens; at most " << lengths.size()
              << " lengths are measured at a trained length of " << count_text(longest) << "\n";
}

const std::string kCommand = concat("tempera ", kVerb);

class ScalingStudy final : public Study {
 public:
  void declare(config::Options& options) override { settings_.declare(options); }
  bool json() const override { return settings_.json; }

  // The models that are done say what was planned; of a study that is not complete, the tuning of
  // learning rates is that of these.
  plot::HtmlReport report_of(const fs::path& file) const override {
    const Json document = read_json(file);
    Plan plan{.data = config::from_json<StudyData>(document.at("settings"), file.string()),
              .cells = {},
              .methods = document.at("results").at("methods")};
    Progressed done;
    for (const Json& model : document.at("models")) {
      done.results.push_back(result_of(model, file.string()));
      const Job& job = done.results.back().job;
      if (job.purpose == Purpose::kCell) plan.cells.push_back(job.cell);
    }
    TEMPERA_CHECK(!plan.cells.empty() && !plan.methods.empty(), file.string(),
                  ": no model of the grid is done; run the same command again to go on");
    done.notes = document.value("notes", std::vector<std::string>());
    done.tuning = tune(plan, [&](const Job& job) -> const JobResult* {
      const auto found = std::ranges::find(done.results, job, &JobResult::job);
      return found == done.results.end() ? nullptr : &*found;
    });
    const Analysis analysis = analyse(plan, done.results);
    return page({plan, done, analysis}, document, kCommand);
  }

  void validate() const override {
    if (settings_.quick != settings_.files.empty())
      throw UsageError(settings_.quick ? "both --quick and files given; give one of them"
                                       : "no grid given; give a TOML file, or --quick");
  }

  // Ranks leave the GPUs to their workers: no copy of a process that has used one can.
  std::optional<config::Device> shared_device() const override { return config::Device::kCpu; }

  std::optional<StudyReport> run(dist::World& world) override {
    const Plan plan = settings_.quick ? quick_plan() : read_plan(settings_.files, settings_.given);
    check_tasks(plan.data);
    auto shared = dist::properties_of(config::describe(plan.data));
    shared.emplace_back("the command", command());
    dist::check_agreement(world, shared);
    std::optional<StudyFolder> folder;
    std::optional<train::DataSource> source;
    world.first([&] {
      folder.emplace(settings_.out, kVerb, config::describe(plan.data), declare_fresh<StudyData>,
                     settings_.fresh, settings_.run.any_build);
      make_text(plan, *folder);
      source.emplace(open_source(plan.data, folder->data_path()));
      check_cells(*source, plan);
      warn_of(*source, plan);
      check_text(*source, plan, folder->path());
      folder->keep();
    });
    if (!folder) source.emplace(train::read_first_data(options_of(plan.data), settings_.out));
    const WorkerSetup setup{.jobs = fs::path(settings_.out) / "jobs",
                            .data = plan.data,
                            .source = &*source,
                            .device = settings_.device,
                            .keep_models = settings_.keep_models};
    RunOptions options = settings_.run;
    options.command = command();
    const auto done = run_study(plan, setup, options, world);
    if (!done) return std::nullopt;
    return report(plan, *done, folder->path());
  }

 private:
  Plan quick_plan() const {
    Given given = settings_.given;
    if (given.text.empty()) given.text = {(fs::path(settings_.out) / kMadeText).string()};
    return make_plan(kQuickGrid, "--quick", given);
  }

  // The text that --quick reads where none is given.
  void make_text(const Plan& plan, const StudyFolder& folder) const {
    if (!settings_.quick || !settings_.given.text.empty()) return;
    const fs::path file = plan.data.text.front();
    if (fs::exists(file) || fs::exists(folder.data_path())) return;
    write_file(file, made_text(kMadeBytes));
  }

  std::string command() const {
    std::string words = concat("tempera ", kVerb);
    for (const auto& file : settings_.files) words += " " + file;
    if (settings_.quick) words += " --quick";
    for (const auto& text : settings_.given.text) words += " --text " + text;
    for (const auto& task : settings_.given.tasks) words += " --tasks " + task;
    return words + " --out " + settings_.out;
  }

  static StudyReport report(const Plan& plan, const Progressed& done, const fs::path& folder) {
    const Analysis analysis = analyse(plan, done.results);
    const Shown shown{plan, done, analysis};
    Json document{{"tempera", std::string(version())},
                  {"study", "scaling"},
                  {"complete", done.left == 0},
                  {"settings", config::to_json(config::describe(plan.data))},
                  {"results", to_json(analysis)},
                  {"notes", done.notes},
                  {"models", Json::array()}};
    const auto html = page(shown, document, kCommand);
    for (const JobResult& result : done.results) document["models"].push_back(to_json(result));
    write_file(folder / "cells.csv", cells_csv(done.results));
    write_study(folder, document, figure(shown), html);
    return {std::move(document), text(shown), folder.string()};
  }

  ScalingSettings settings_;
};

}  // namespace
}  // namespace tempera::study::scaling

namespace tempera::study {

std::shared_ptr<Study> make_scaling_study() { return std::make_shared<scaling::ScalingStudy>(); }

}  // namespace tempera::study
