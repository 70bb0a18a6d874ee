#include "tempera/study/scaling/worker.h"

#include <ATen/DeviceAccelerator.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/models/device.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"
#include "tempera/study/job.h"
#include "tempera/study/probe.h"
#include "tempera/study/scaling/measure.h"
#include "tempera/train/divergence.h"
#include "tempera/train/log.h"
#include "tempera/train/trainer.h"

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenReports = std::chrono::milliseconds(200);
// Points of the training loss that a result keeps.
constexpr int64_t kCurvePoints = 100;
// For the process that worked on a job before, and was killed with its study, to be gone.
constexpr int kPatience = 50;
constexpr auto kBetweenTries = std::chrono::milliseconds(100);
constexpr int64_t kMostProbedTokens = 65'536;

nn::ModelConfig full_model(const Cell& cell, const train::DataSource& source) {
  nn::ModelConfig model = model_of(cell);
  model.vocabulary = source.vocabulary();
  return model;
}

train::RunFolder open_patiently(const fs::path& path) {
  for (int i = 0; i < kPatience; ++i) {
    try {
      return {path, kVerb};
    } catch (const Error&) {
      std::this_thread::sleep_for(kBetweenTries);
    }
  }
  return {path, kVerb};
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  const std::string_view words = error.what();
  return words.find("can't allocate memory") != words.npos ||
         words.find("out of memory") != words.npos;
}

std::vector<std::pair<int64_t, double>> curve_of(const fs::path& log) {
  std::vector<std::pair<int64_t, double>> curve;
  for (const auto& line : train::read_log(log))
    if (line.contains("loss") && line["loss"].is_number())
      curve.emplace_back(line["step"].get<int64_t>(), line["loss"].get<double>());
  return curve;
}

class Worker {
 public:
  Worker(const WorkerSetup& setup, LineSocket& parent) : setup_(setup), parent_(parent) {}

  void serve() {
    at::set_num_threads(1);
    const auto place = dist::place_from_environment();
    if (place && setup_.device != config::Device::kCpu) dist::use_local_gpu(*place);
    const auto device = models::resolve_device(setup_.device);
    int64_t memory = 0;
    if (device.is_cuda())
      memory = static_cast<int64_t>(
          at::accelerator::getMemoryInfo(at::accelerator::getDeviceIndex()).second);
    else
      memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
    say({{"hello", {{"device", device.is_cuda() ? "cuda" : "cpu"}, {"memory", memory}}}});
    for (std::string line; InterruptGuard::signal() == 0 && parent_.receive(line);) {
      try {
        obey(Json::parse(line));
      } catch (const Interrupted&) {
        say({{"stopped", true}});
      } catch (const std::exception& error) {
        const std::string words = error.what();
        say({{"failed", words.substr(0, words.find("\nException raised"))}});
      }
      if (device.is_cuda()) at::accelerator::emptyCache();  // other processes may need it
    }
  }

 private:
  void say(const Json& message) const { parent_.send(message.dump()); }

  void obey(const Json& told) {
    if (told.contains("probe")) {
      probe(job_of(told.at("probe")));
      return;
    }
    JobResult result{.job = job_of(told.at("job"))};
    run(result, told.at("micro_batch"), told.at("save_every"));
    say({{"done", name_of(result.outcome)}});
  }

  void probe(const Job& job) const {
    train::TrainOptions training = training_of(job, setup_.device);
    training.steps = 0;
    const auto dataset = joined_rows(*setup_.source, job.cell.context, 0);
    const bool on_gpu = models::resolve_device(setup_.device).is_cuda();
    const Probe wanted{.models = {full_model(job.cell, *setup_.source)},
                       .training = training,
                       .dataset = dataset,
                       .most_tokens = on_gpu ? kMostProbedTokens : 0};
    say({{"seconds_per_token", seconds_per_token(wanted)}});
  }

  // Where memory runs out, again with half of the rows at once.
  void run(JobResult& result, int64_t micro_batch, int64_t save_every) {
    const int64_t batch = result.job.cell.batch();
    int64_t rows = micro_batch;
    while (true) {
      try {
        train_and_measure(result, rows, save_every);
        break;
      } catch (const train::Diverged& error) {
        result.outcome = Outcome::kDiverged;
        result.reason = error.what();
        result.reason = result.reason.substr(0, result.reason.find("; "));
        break;
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        if (!is_out_of_memory(error)) throw;
        const int64_t before = rows > 0 ? rows : batch;
        if (before == 1) {
          result.outcome = Outcome::kOutOfMemory;
          result.reason = "memory ran out with one row at a time";
          break;
        }
        rows = before / 2;
        say({{"note", concat(result.job.label(), ": memory ran out; again with ", rows,
                             rows == 1 ? " row" : " rows", " at a time")}});
      }
    }
    finish(result);
  }

  void finish(JobResult& result) {
    result.build = build_id();
    if (result.outcome != Outcome::kDone) {
      result.losses.clear();
      result.recall.clear();
      result.tasks.clear();
    }
    write_file(result_file(setup_.jobs, result.job), to_json(result).dump() + "\n");
    if (!setup_.keep_models) fs::remove_all(job_folder(setup_.jobs, result.job));
  }

  void train_and_measure(JobResult& result, int64_t micro_batch, int64_t save_every) {
    const Job& job = result.job;
    const auto model =
        nn::make_model(full_model(job.cell, *setup_.source), static_cast<uint64_t>(job.cell.seed));
    const auto dataset =
        joined_rows(*setup_.source, job.cell.context, static_cast<uint64_t>(job.cell.seed));
    set_token_counts(*model, *dataset, job.cell.batch());
    train::TrainOptions options = training_of(job, setup_.device);
    options.micro_batch = micro_batch;
    options.save_every = save_every;
    train::RunFolder folder = open_patiently(job_folder(setup_.jobs, job));
    if (!folder.mark())
      folder.begin(to_json(job), "# a model of a study: `tempera study scaling` goes on with it\n");
    train::Trainer trainer(
        options, model, [&](size_t, int64_t) { return dataset; }, events(),
        setup_.source->tokenizer());
    trainer.attach(folder);
    const train::TrainResult trained = trainer.run();
    result.outcome = Outcome::kDone;
    result.reason.clear();
    result.steps = trained.step;
    result.tokens = trained.tokens;
    result.micro_batch = micro_batch;
    result.seconds = trained.seconds;
    result.temperature_parameters = model->temperature_parameter_count();
    result.passes =
        static_cast<double>(trained.tokens) /
        static_cast<double>(setup_.source->text_tokens() - setup_.source->held_out_tokens());
    result.curve = curve_of(folder.log_path());
    result.losses.clear();
    result.recall.clear();
    result.tasks.clear();
    measure(*model, setup_.data, *setup_.source, result);
    judge(result);
  }

  // One that knows less than the number of tokens has not learned.
  void judge(JobResult& result) const {
    const double nothing = std::log(static_cast<double>(setup_.source->vocabulary()));
    const double loss = result.losses.front().loss;
    if (std::isfinite(loss) && loss < nothing) return;
    result.outcome = Outcome::kDiverged;
    result.reason =
        concat("the held-out loss is ", loss, " in the end; knowing nothing gives ", nothing);
  }

  train::TrainEvents events() {
    train::TrainEvents events;
    events.on_step = [this](const train::StepReport& step) {
      const auto now = Clock::now();
      if (now - reported_ < kBetweenReports) return;
      reported_ = now;
      say({{"at", step.step}, {"share", step.progress}});
    };
    events.say = [this](std::string_view text) { say({{"note", text}}); };
    events.signal = InterruptGuard::signal;
    return events;
  }

  const WorkerSetup& setup_;
  LineSocket& parent_;
  Clock::time_point reported_ = Clock::now();
};

}  // namespace

fs::path result_file(const fs::path& jobs, const Job& job) { return jobs / (job.id() + ".json"); }
fs::path job_folder(const fs::path& jobs, const Job& job) { return jobs / job.id(); }

train::TrainOptions training_of(const Job& job, config::Device device) {
  train::TrainOptions options;
  const int64_t steps = job.cell.steps();
  options.steps = steps;
  options.batch = job.cell.batch();
  options.seed = job.cell.seed;
  options.dtype = job.cell.dtype;
  options.optimizer.learning_rate = job.learning_rate;
  options.schedule.warmup = std::clamp<int64_t>(steps / 20, 1, 1000);
  options.eval_every = 0;
  options.eval_rows = 0;
  options.log_every = std::max<int64_t>(1, steps / kCurvePoints);
  options.watch_every = 0;
  options.keep = 1;
  options.device = device;
  return options;
}

void serve(const WorkerSetup& setup, LineSocket& parent) { Worker(setup, parent).serve(); }

}  // namespace tempera::study::scaling
