#include "tempera/adapt/estimate.h"

#include <algorithm>
#include <chrono>

#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

// Enough rows to fill the device, few enough to take no time.
constexpr int64_t kProbeLength = 512, kProbeRows = 1, kGpuProbeRows = 16;

double seconds_of_pass(nn::Model& model, int64_t rows, int64_t length) {
  const torch::NoGradGuard no_grad;
  model.eval();
  nn::Batch batch;
  const auto place = torch::TensorOptions(torch::kInt64).device(model.output_weight().device());
  batch.tokens = torch::arange(rows * length, place).remainder(model.config().vocabulary);
  batch.tokens = batch.tokens.view({rows, length});
  batch.targets = batch.tokens;
  const auto begin = std::chrono::steady_clock::now();
  model.token_losses(batch).sum().item<double>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Multiply-adds of a token in a window, those of the weights and of the attention.
double cost(const nn::Model& model, int64_t length) {
  const auto& config = model.config();
  return static_cast<double>(model.parameter_count() +
                             config.layers * config.heads * config.size_of_head() * length);
}

}  // namespace

std::vector<Windows> windows_of(const MeasureOptions& options) {
  std::vector<Windows> windows;
  for (const int64_t length : options.lengths)
    windows.push_back({.length = length, .tokens = options.tokens});
  const auto cases = options.passkey.cases * static_cast<int64_t>(options.passkey.depths.size());
  for (const int64_t length : options.passkey.lengths)
    if (cases > 0) windows.push_back({.length = length, .tokens = cases * length});
  return windows;
}

int64_t tokens_of(std::span<const Windows> windows) {
  int64_t tokens = 0;
  for (const auto& part : windows) tokens += part.tokens;
  return tokens;
}

double passes_of_learning(bool recompute) { return recompute ? 3.5 : 2.5; }

double estimate_seconds(nn::Model& model, std::span<const Windows> windows) {
  const int64_t rows = model.output_weight().is_cuda() ? kGpuProbeRows : kProbeRows;
  const int64_t most = model.config().max_length() > 0 ? model.config().max_length() : kProbeLength;
  const int64_t length = std::min(kProbeLength, most);
  seconds_of_pass(model, rows, length);  // asks for memory
  const double unit = seconds_of_pass(model, rows, length) /
                      (static_cast<double>(rows * length) * cost(model, length));
  double sum = 0;
  for (const auto& part : windows)
    sum += unit * cost(model, part.length) * static_cast<double>(part.tokens) * part.passes;
  return sum;
}

}  // namespace tempera::adapt
