#include "tempera/adapt/report.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/eval/page.h"
#include "tempera/io/json.h"
#include "tempera/plot/join.h"
#include "tempera/study/compare.h"
#include "tempera/study/study.h"
#include "tempera/train/report.h"

namespace tempera::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct ReportSettings {
  std::vector<std::string> folders;
  std::optional<std::string> out;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("folders", folders,
                       "folders of runs: of train, finetune, calibrate, compare, study and eval");
    options.option("out", out,
                   "the page; not given: report.html in the folder of one run, or here for several",
                   {.local = true, .section = config::Section::kOutput});
    config::json_option(options, json);
  }
};

// A run, as far as a page needs it.
struct ShownRun {
  std::string verb;  // as a person types it
  plot::HtmlReport report;
};

ordered_json read_document(const fs::path& file) {
  return io::parse_ordered_json(read_file(file, kLargestText), file.string());
}

std::shared_ptr<study::Study> study_named(const std::string& name, const fs::path& folder) {
  for (const auto& entry : study::studies())
    if (entry.name == name) return entry.make();
  throw Error(
      concat("'", folder.string(), "' holds a study that this program does not know: ", name));
}

ShownRun study_run(const std::string& name, const fs::path& folder) {
  return {"study " + name, study_named(name, folder)->report_of(study::results_in(folder))};
}

ShownRun evaluation_run(const fs::path& file) {
  try {
    return {"eval", eval::page_of(read_document(file))};
  } catch (const Error& error) {
    throw Error(concat("'", file.string(), "' cannot be shown: ", error.what()));
  }
}

ShownRun calibration_run(const fs::path& folder) {
  const fs::path file = folder / "calibration.json";
  // One that was stopped has its log.
  if (!fs::is_regular_file(file)) return {"calibrate", train::report_of_run(folder)};
  return {"calibrate", adapt::to_html(adapt::calibration_of(read_document(file), file.string()))};
}

// By what a verb wrote of itself.
ShownRun marked_run(const fs::path& folder) {
  const std::string verb = train::mark_in(folder / WorkFolder::kMark, "").verb;
  constexpr std::string_view kStudy = "study ";
  if (verb.starts_with(kStudy)) return study_run(verb.substr(kStudy.size()), folder);
  if (verb == "train" || verb == "finetune") return {verb, train::report_of_run(folder)};
  if (verb == "compare") return {verb, study::report_of_comparison(folder)};
  if (verb == "calibrate") return calibration_run(folder);
  throw Error(concat("'", folder.string(), "' holds a run of `tempera ", verb,
                     "`, of which there is no report"));
}

// Of the verbs whose results appear at once: there is no run to go on with, and no mark.
ShownRun finished_run(const fs::path& folder) {
  if (const fs::path file = folder / "eval.json"; fs::is_regular_file(file))
    return evaluation_run(file);
  if (fs::is_regular_file(folder / "results.json")) return study_run("dilution", folder);
  throw UsageError(concat("'", folder.string(),
                          "' is not the folder of a run: it has neither run.json nor eval.json nor "
                          "results.json; give the --out folder of train, finetune, calibrate, "
                          "compare, study or eval"));
}

ShownRun read_run(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw UsageError(concat("'", folder.string(), "' is no folder; give the folders of runs"));
  try {
    return fs::exists(folder / WorkFolder::kMark) ? marked_run(folder) : finished_run(folder);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(
        concat("'", folder.string(), "' holds no results that can be read: ", error.what()));
  }
}

fs::path page_path(const ReportSettings& settings) {
  if (settings.out) return *settings.out;
  return settings.folders.size() == 1 ? fs::path(settings.folders[0]) / "report.html"
                                      : fs::path("report.html");
}

// What stands there is replaced only where it is a report.
void check_place(const fs::path& path) {
  if (!fs::exists(fs::symlink_status(path))) return;
  std::string begin(1024, '\0');
  if (fs::is_regular_file(path)) {
    std::ifstream file(path, std::ios::binary);
    file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    begin.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (begin.find(plot::kGenerator) != std::string::npos) return;
  }
  throw UsageError(concat("'", path.string(),
                          "' is there, and tempera did not write it as a report; give another name "
                          "with --out"));
}

// What tells the folders apart: their names, or as much of the paths as was given.
std::vector<std::string> names_of(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    const fs::path path = fs::path(folder).lexically_normal();
    names.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  for (const auto& name : names)
    if (std::ranges::count(names, name) > 1) return folders;
  return names;
}

void check_folders(const std::vector<std::string>& folders) {
  if (folders.empty()) throw UsageError("no folder given; give the folders of one or more runs");
  for (size_t i = 0; i < folders.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      std::error_code missing;  // is reported when it is opened
      if (folders[i] == folders[j] || fs::equivalent(folders[i], folders[j], missing))
        throw UsageError(concat("'", folders[i], "' given twice"));
    }
}

void run(const ReportSettings& settings) {
  check_folders(settings.folders);
  const fs::path path = page_path(settings);
  check_place(path);
  const auto names = names_of(settings.folders);
  std::vector<plot::NamedReport> reports;
  ordered_json document{{"page", path.string()}, {"bytes", 0}, {"runs", ordered_json::array()}};
  for (size_t i = 0; i < settings.folders.size(); ++i) {
    ShownRun one = read_run(settings.folders[i]);
    const plot::Summary summary = one.report.first_summary();
    document["runs"].push_back({{"folder", settings.folders[i]},
                                {"verb", one.verb},
                                {"title", one.report.title()},
                                {"asked", summary.asked},
                                {"answer", summary.answer},
                                {"not_shown", summary.not_shown}});
    reports.push_back({names[i], std::move(one.report)});
  }
  const std::string page =
      reports.size() == 1 ? reports[0].report.html() : plot::join(reports).html();
  write_file(path, page);
  constexpr size_t kLarge = 2'000'000;
  if (page.size() > kLarge)
    std::cerr << "note: the page has " << page.size() / 1'000'000
              << " MB; fewer runs make it smaller\n";
  document["bytes"] = page.size();
  if (settings.json) {
    std::cout << document.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return;
  }
  for (size_t i = 0; i < reports.size(); ++i)
    std::cout << names[i] << ": " << document["runs"][i]["answer"].get<std::string>() << "\n";
  std::cout << "report: " << path.string() << "\n";
}

}  // namespace

Verb report_verb() {
  return make_verb<ReportSettings>(
      "report", "makes a page of one run or of several: answers, curves, numbers to save",
      {{"tempera report run", "report.html of a training, also while it works"},
       {"tempera report runs/a runs/b calibrated --out page.html",
        "three runs on one page, with their curves in one chart"}},
      run);
}

}  // namespace tempera::cli
