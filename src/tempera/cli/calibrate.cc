#include "tempera/adapt/calibrate.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/cli/run.h"
#include "tempera/cli/verb.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

namespace fs = std::filesystem;

struct CalibrateSettings {
  adapt::CalibrateOptions calibration;
  RunOptions place{.out = "calibrated"};
  dist::Options ranks;
  bool fresh = false;

  void declare(config::Options& options) {
    calibration.declare(options);
    place.declare(options);
    config::fresh_option(options, fresh);
    ranks.declare(options);
  }
};

adapt::CalibrateEvents events_in(const train::RunFolder& folder, const fs::path& tensorboard) {
  return {.say = [](std::string_view line) { std::cerr << line << "\n"; },
          .show =
              [&folder](const std::string& name, const auto& run) {
                RunDisplay display(name);
                const auto result = run(display.events(folder));
                display.finish();
                return result;
              },
          .command = continue_command(folder),
          .tensorboard = tensorboard};
}

void print(const adapt::CalibrationResult& result, const fs::path& folder) {
  std::cout << adapt::to_text(result) << "report                  "
            << (folder / "report.html").string() << "\n";
  if (result.folds)
    std::cout << "to use it elsewhere     tempera export " << quoted(result.out)
              << " --fold --out FOLDER\n";
  else
    std::cout << "to use it               tempera generate " << quoted(result.out)
              << " (other programs cannot: it does not fold into weights)\n";
}

// Of a rank that is not the first.
adapt::CalibrateEvents events_beside(const dist::World& world) {
  const auto say = rank_events(world).say;
  return {.say = say ? say : [](std::string_view) {},
          .show = [&world](const std::string&, const auto& run) { return run(rank_events(world)); },
          .command = {}};
}

// What one of the ranks does, or the only process. The folder is the first rank's.
void calibrate(const CalibrateSettings& settings, dist::World& world) {
  check_shared_by_all(world.size(), settings.calibration.context_ranks);
  std::optional<train::RunFolder> folder;
  fs::path aside;
  if (world.is_first()) {
    folder.emplace(settings.place.out, "calibrate", adapt::calibration_files());
    if (settings.fresh && folder->mark()) aside = folder->set_aside();
    if (folder->mark()) folder->refuse_other_build();
    open_run(*folder, settings, settings.place.resume);
  }
  adapt::Calibrator calibrator(
      settings.calibration, world, folder ? &*folder : nullptr,
      folder ? events_in(*folder, settings.place.tensorboard) : events_beside(world));
  std::optional<train::DataSource> source;
  world.first(
      [&] { source.emplace(open_data(calibrator.data(), *folder, calibrator.tokenizer())); });
  if (!folder)
    source.emplace(
        train::read_first_data(calibrator.data(), settings.place.out, calibrator.tokenizer()));
  calibrator.check_text(*source);
  if (folder) folder->keep();
  if (!aside.empty()) std::cerr << "the earlier calibration is in '" << aside.string() << "' now\n";
  auto result = calibrator.run(*source);
  if (!result) return;
  result->out = settings.place.out;
  adapt::save(*result, folder->path());
  if (settings.place.json)
    std::cout << adapt::to_json(*result).dump(2) << "\n";
  else
    print(*result, folder->path());
}

void run(const CalibrateSettings& settings) {
  settings.calibration.validate();
  if (settings.ranks.ranks > 0)
    check_shared_by_all(settings.ranks.ranks, settings.calibration.context_ranks);
  models::use_threads(settings.place.threads);
  run_in_world(settings.ranks, settings.calibration.device,
               [&](dist::World& world) { calibrate(settings, world); });
}

}  // namespace

Verb calibrate_verb() {
  return make_verb<CalibrateSettings>(
      "calibrate", "learns temperatures for an existing model with its weights frozen",
      {{"tempera calibrate MODEL --text book.txt",
        "norm gains and temperatures that fold into the weights"},
       {"tempera calibrate MODEL --text book.txt --context 16384", "and a longer context"},
       {"tempera calibrate MODEL --text book.txt --learn ssa --controls norm",
        "another method, with controls"}},
      run);
}

}  // namespace tempera::cli
