#include "tempera/cli/run.h"

#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tempera/base/interrupt.h"
#include "tempera/base/text_table.h"
#include "tempera/config/common.h"
#include "tempera/dist/launch.h"
#include "tempera/models/device.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;
using train::RunFolder;

ordered_json to_json(const train::TrainResult& result, const std::string& out, nn::Model& model) {
  ordered_json json{{"out", out},
                    {"steps", result.step},
                    {"resumed_from", result.first_step},
                    {"tokens", result.tokens},
                    {"seconds", result.seconds},
                    {"parameters", model.parameter_count()},
                    {"temperature", model.config().temperature.method},
                    {"temperature_parameters", model.temperature_parameter_count()},
                    {"loss", result.loss},
                    {"validation", nullptr},
                    {"best", nullptr}};
  if (result.validation)
    json["validation"] = {{"loss", result.validation->loss},
                          {"perplexity", result.validation->perplexity},
                          {"targets", result.validation->targets}};
  if (result.best)
    json["best"] = {{"step", result.best->step}, {"validation_loss", result.best->loss}};
  return json;
}

}  // namespace

void RunOptions::declare(config::Options& options) {
  config::out_option(options, out);
  options.option("tensorboard", tensorboard,
                 "folder for event files that TensorBoard reads; not given: none",
                 {.local = true, .section = config::Section::kOutput});
  options.option("resume", resume, "continue the run in the output folder, if there is one",
                 {.local = true, .section = config::Section::kOutput});
  config::threads_option(options, threads);
  config::json_option(options, json);
}

train::DataSource open_data(const train::DataOptions& data, const RunFolder& folder,
                            const std::shared_ptr<const text::Tokenizer>& own) {
  int64_t total = 0;
  for (const auto& path : data.text) {
    std::error_code missing;  // reported by the conversion, with advice
    const auto size = std::filesystem::file_size(path, missing);
    total += missing ? 0 : static_cast<int64_t>(size);
  }
  Progress progress("tokenize", total, "bytes");
  return {data, folder.data_path(),
          [&](int64_t bytes) {
            progress.update(bytes);
            stop_if_interrupted(
                "interrupted before the training began: nothing was written; run the same command "
                "again");
          },
          own};
}

train::TrainEvents rank_events(const dist::World& world) {
  train::TrainEvents events;
  if (world.speaks())
    events.say = [rank = world.rank()](std::string_view text) {
      std::cerr << "rank " << rank << ": " << text << "\n";
    };
  events.signal = InterruptGuard::signal;
  return events;
}

void check_shared_by_all(int64_t ranks, int64_t context_ranks) {
  if (ranks != context_ranks)
    throw UsageError(concat("--context-ranks ", context_ranks, " given, and ", ranks,
                            ranks == 1 ? " rank" : " ranks",
                            " (--ranks); all ranks share each window: give both the same number"));
}

void run_in_world(const dist::Options& options, config::Device device,
                  const std::function<void(dist::World&)>& job) {
  const auto place = dist::place_from_environment();
  if (place && options.ranks > 0 && options.ranks != place->size)
    throw UsageError(concat("--ranks ", options.ranks, " given, and the environment says that ",
                            place->size, " ranks were started; leave --ranks out"));
  if (!place && options.ranks > 1) {
    // What no rank can do is said once, before they start.
    if (options.backend == dist::BackendChoice::kNccl)
      dist::group_kind(options.backend, models::resolve_device(device).type());
    return dist::run_ranks(options.ranks);
  }
  const InterruptGuard guard;
  if (!place || place->size == 1) {
    dist::World alone;
    return job(alone);
  }
  if (device != config::Device::kCpu) dist::use_local_gpu(*place);
  dist::World world(*place, options, models::resolve_device(device).type());
  world.run([&] { job(world); });
}

std::string continue_command(const RunFolder& folder) {
  return concat("tempera ", folder.verb(), " --config ",
                quoted((folder.path() / "run.toml").string()));
}

train::TrainEvents RunDisplay::events(const RunFolder& folder) {
  train::TrainEvents events;
  events.on_step = [this](const train::StepReport& report) { step(report); };
  events.on_validation = [this](int64_t, const train::Validation& result) {
    validation_ = "  validation " + fixed(result.loss, 4);
    if (report_) report_->write_sometimes();
  };
  events.say = [](std::string_view text) { std::cerr << text << "\n"; };
  events.signal = InterruptGuard::signal;
  events.command = continue_command(folder);
  return events;
}

void RunDisplay::say_duration(const train::StepReport& report) {
  // Shorter ones are over before anybody asks.
  constexpr double kEnoughSeconds = 1;
  if (duration_said_ || report.steps == 0) return;
  if (!first_) {
    first_ = report;
    return;
  }
  // The first step also asks for memory, and does not count.
  const double seconds = report.seconds - first_->seconds;
  if (seconds < kEnoughSeconds) return;
  const auto steps = static_cast<double>(report.step - first_->step);
  const int64_t left = report.steps - first_->step + 1;
  const auto tokens = static_cast<double>(report.tokens - first_->tokens);
  progress_->note(concat(about_text(seconds / steps * static_cast<double>(left)), ": ",
                         count_text(left), left < report.steps ? " more steps of " : " steps of ",
                         count_text(std::llround(tokens / steps)), " tokens at ",
                         quantity_text(tokens / seconds), " tokens/s"));
  duration_said_ = true;
}

void RunDisplay::step(const train::StepReport& report) {
  const bool counted = report.steps > 0;
  if (!progress_) {
    progress_.emplace(title_, counted ? report.steps : 1, "tokens");
    if (counted) progress_->start_at(report.step - 1);
    tokens_before_ = report.tokens;
  }
  say_duration(report);
  const int64_t tokens = report.tokens - tokens_before_;
  const std::string loss = "loss " + fixed(report.loss, 4) + validation_;
  if (counted)
    progress_->update(report.step, tokens, loss);
  else
    progress_->update_share(report.progress, concat("step ", report.step), tokens, loss);
}

void RunDisplay::keep_report(const RunFolder& folder) {
  report_.emplace(folder.path(), [](std::string_view line) { std::cerr << line << "\n"; });
}

train::TrainResult RunDisplay::run(train::Trainer& trainer) {
  const auto write = [&] {
    if (report_) report_->write();
  };
  try {
    const train::TrainResult result = trainer.run();
    finish();
    write();
    return result;
  } catch (...) {
    write();
    throw;
  }
}

void RunDisplay::finish() {
  if (progress_) progress_->finish();
}

void print_run(const train::TrainResult& result, const std::string& out, nn::Model& model,
               bool json) {
  if (json) {
    std::cout << to_json(result, out, model).dump(2) << "\n";
    return;
  }
  const auto line = [](const char* name) -> std::ostream& {
    return std::cout << std::left << std::setw(14) << name;
  };
  line("steps") << result.step << ", " << quantity_text(static_cast<double>(result.tokens))
                << " tokens in " << duration_text(result.seconds) << "\n";
  line("parameters") << model.parameter_count() << ", of these "
                     << model.temperature_parameter_count() << " of the temperature ("
                     << model.config().temperature.method << ")\n";
  if (result.step > result.first_step) line("loss") << fixed(result.loss, 4) << "\n";
  if (result.validation)
    line("validation") << fixed(result.validation->loss, 4) << ", perplexity "
                       << fixed(result.validation->perplexity, 2) << "\n";
  if (result.best)
    line("best") << fixed(result.best->loss, 4) << " at step " << result.best->step << "\n";
  line("model") << (std::filesystem::path(out) / (result.best ? "best" : "last")).string() << "\n";
  line("report") << (std::filesystem::path(out) / "report.html").string() << "\n";
}

}  // namespace tempera::cli
