#include "tempera/adapt/calibrate.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/base/interrupt.h"
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
  bool fresh = false;

  void declare(config::Options& options) {
    calibration.declare(options);
    place.declare(options);
    config::fresh_option(options, fresh);
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

void run(const CalibrateSettings& settings) {
  settings.calibration.validate();
  models::use_threads(settings.place.threads);
  const InterruptGuard guard;
  train::RunFolder folder(settings.place.out, "calibrate", adapt::calibration_files());
  const bool anew = settings.fresh && folder.mark();
  const fs::path aside = anew ? folder.set_aside() : fs::path();
  if (folder.mark()) folder.refuse_other_build();
  open_run(folder, settings, settings.place.resume);
  adapt::Calibrator calibrator(settings.calibration, folder,
                               events_in(folder, settings.place.tensorboard));
  const train::DataSource source = open_data(calibrator.data(), folder, calibrator.tokenizer());
  calibrator.check_text(source);
  folder.keep();
  if (anew) std::cerr << "the earlier calibration is in '" << aside.string() << "' now\n";
  adapt::CalibrationResult result = calibrator.run(source);
  result.out = settings.place.out;
  adapt::save(result, folder.path());
  if (settings.place.json)
    std::cout << adapt::to_json(result).dump(2) << "\n";
  else
    print(result, folder.path());
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
