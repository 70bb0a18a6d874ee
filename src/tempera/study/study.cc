#include "tempera/study/study.h"

#include <array>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/config/common.h"

namespace tempera::study {

std::span<const StudyEntry> studies() {
  static const std::array kStudies = {
      StudyEntry{"denoise", "recover a vector from noise tokens; error against the optimum",
                 make_denoise_study},
      StudyEntry{"graph", "next node where nodes have one neighbour or many; learned temperatures",
                 make_graph_study},
      StudyEntry{"dilution", "entropy and weight on the right token against the context's length",
                 make_dilution_study},
      StudyEntry{"ablation", "the parts of ssa, and simpler rules: accuracy, parameters, cost",
                 make_ablation_study},
      StudyEntry{"scaling", "loss by size, tokens and context; what a method saves, with intervals",
                 make_scaling_study},
  };
  return kStudies;
}

void ToySettings::declare(config::Options& options) {
  options.section(config::Section::kTemperature);
  options.option("methods", methods,
                 "methods to compare: NAME, A+B for a product, or NAME:OPTION=VALUE");
  options.section(config::Section::kTraining);
  options.option("seeds", seeds, config::range(1, 10000),
                 "models per method; all methods use the same seeds");
  config::out_option(options, out);
  config::fresh_option(options, fresh);
  config::threads_option(options, threads);
  config::json_option(options, json);
  config::seed_option(options, seed);
  options.option("steps", steps, config::range(1, 1e9), "training steps");
  options.option("batch", batch, config::range(1, 1 << 20), "contexts per step");
  options.option("learning-rate", learning_rate, config::above(0), "peak learning rate");
}

std::filesystem::path results_in(const std::filesystem::path& folder) {
  const auto file = folder / "results.json";
  TEMPERA_CHECK(std::filesystem::is_regular_file(file), "'", folder.string(),
                "' has no results.json: what began there has not finished; run the same command "
                "again to go on");
  return file;
}

void write_study(const std::filesystem::path& folder, const nlohmann::ordered_json& document,
                 const plot::Figure& figure, const plot::HtmlReport& report) {
  write_file(folder / "results.json", document.dump(1) + "\n");
  report.save(folder / "report.html");
  plot::save(figure, folder / "report.svg");
  plot::save(figure, folder / "report.png");
}

}  // namespace tempera::study
