#include "tempera/study/probe.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "tempera/models/device.h"
#include "tempera/nn/model.h"
#include "tempera/study/pool.h"
#include "tempera/train/trainer.h"

namespace tempera::study {
namespace {

// Of all models together.
constexpr double kProbeSeconds = 1.5;
// A long step tells no more about a token than a short one; a GPU has to be filled.
constexpr int64_t kMostTokens = 2048, kMostGpuTokens = 8192;

double seconds_per_token(const Probe& probe, const nn::ModelConfig& config) {
  train::TrainOptions options = probe.training;
  options.stages.clear();
  options.tokens = 0;
  options.seconds = kProbeSeconds / static_cast<double>(probe.models.size());
  const bool on_gpu = models::resolve_device(options.device).is_cuda();
  const int64_t usual = on_gpu ? kMostGpuTokens : kMostTokens;
  const int64_t most = probe.most_tokens > 0 ? probe.most_tokens : usual;
  options.batch = std::clamp<int64_t>(most / config.context, 1, options.batch);
  options.micro_batch = 0;
  options.eval_rows = 0;
  train::StepReport first, last;
  train::TrainEvents events;
  events.on_step = [&](const train::StepReport& report) {
    if (report.step == 1) first = report;
    last = report;
  };
  train::Trainer(
      options, nn::make_model(config, 0), [&](size_t, int64_t) { return probe.dataset; },
      std::move(events))
      .run();
  // The first step also asks for memory; it counts where there is no other.
  if (last.step == 1) first = {};
  return (last.seconds - first.seconds) / static_cast<double>(last.tokens - first.tokens);
}

}  // namespace

double seconds_per_token(const Probe& probe) {
  const auto workers = static_cast<size_t>(probe.workers);
  std::vector<double> sums(workers);
  std::vector<std::exception_ptr> errors(workers);
  std::vector<std::thread> threads;
  for (size_t worker = 0; worker < workers; ++worker)
    threads.push_back(start_worker([&, worker] {
      try {
        for (size_t i = 0; i < probe.models.size(); ++i)
          sums[worker] +=
              seconds_per_token(probe, probe.models[(worker + i) % probe.models.size()]);
      } catch (...) {
        errors[worker] = std::current_exception();
      }
    }));
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum / static_cast<double>(workers * probe.models.size());
}

}  // namespace tempera::study
