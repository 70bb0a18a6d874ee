#include "tempera/study/study.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"

namespace tempera::cli {
namespace {

// The options behind the study's name are its own.
struct StudySettings {
  std::string name;
  std::shared_ptr<study::Study> study;
  dist::Options ranks;

  void declare(config::Options& options) {
    std::vector<std::string> names;
    std::string help = "what to study (`tempera study NAME --help` lists its options)";
    for (const auto& entry : study::studies()) {
      names.push_back(entry.name);
      help += "; " + entry.name + ": " + entry.help;
    }
    options.positional("study", name, config::choices(names), help);
    options.section(config::Section::kMeasuring);
    for (const auto& entry : study::studies())
      if (entry.name == name) study = entry.make();
    if (!study) return;
    study->declare(options);
    if (study->shared_device()) ranks.declare(options);
  }
};

void run_study(study::Study& study, dist::World& world) {
  const auto report = study.run(world);
  if (!report) return;
  std::cout << (study.json() ? report->document.dump(1) + "\n" : report->text);
  std::cerr << "report: " << (std::filesystem::path(report->folder) / "report.html").string()
            << "\n";
}

void run(const StudySettings& settings) {
  settings.study->validate();
  const auto device = settings.study->shared_device();
  if (!device) {
    const auto place = dist::place_from_environment();
    if (place && place->size > 1)
      throw UsageError(concat("the environment says that ", place->size,
                              " ranks were started, and they cannot share this study; start it "
                              "once, without torchrun"));
    dist::World alone;
    return run_study(*settings.study, alone);
  }
  run_in_world(settings.ranks, *device,
               [&](dist::World& world) { run_study(*settings.study, world); });
}

}  // namespace

Verb study_verb() {
  return make_verb<StudySettings>(
      "study", "runs controlled studies: denoising, graphs, dilution, the parts of ssa, scaling",
      {{"tempera study denoise",
        "a vector in noise: query and value temperatures against plain attention"},
       {"tempera study dilution MODEL --text book.txt",
        "how a model's attention thins out as the context grows"},
       {"tempera study scaling --quick", "five tiny sizes, two methods, a fitted law"},
       {"tempera study ablation --help", "the options of one study"}},
      run);
}

}  // namespace tempera::cli
