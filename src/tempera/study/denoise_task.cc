#include "tempera/ops/torch.h"
#include "tempera/study/denoise.h"

namespace tempera::study {

// The relevant tokens stand in front: attention without positions cannot see the order.
DenoiseBatch make_denoise_batch(const DenoiseTask& task, int64_t rows, int64_t noise,
                                at::Generator& random) {
  const int64_t all = task.relevant + noise;
  const auto target = torch::randn({rows, task.size}, random);
  const auto relevant =
      target.unsqueeze(1) + task.sigma * torch::randn({rows, task.relevant, task.size}, random);
  const auto others = torch::randn({rows, noise, task.size}, random);
  auto mark = torch::ones({rows, all, 1});
  mark.narrow(1, task.relevant, noise).fill_(-1);
  if (task.mark_noise > 0) mark += task.mark_noise * torch::randn({rows, all, 1}, random);
  const auto numbers = torch::cat({relevant, others}, 1);
  return {torch::cat({numbers, mark, torch::ones({rows, all, 1})}, 2), target};
}

double optimal_error(const DenoiseTask& task) {
  const double variance = task.sigma * task.sigma;
  return variance / (static_cast<double>(task.relevant) + variance);
}

// What is left of y, and the variance of the mean of the noises.
double naive_error(const DenoiseTask& task, int64_t noise) {
  const auto r = static_cast<double>(task.relevant), m = static_cast<double>(noise);
  return (m * m + r * task.sigma * task.sigma + m) / ((r + m) * (r + m));
}

torch::Tensor optimal_estimate(const DenoiseTask& task, const DenoiseBatch& batch) {
  const auto relevant = batch.tokens.narrow(1, 0, task.relevant).narrow(2, 0, task.size);
  return relevant.sum(1) / (static_cast<double>(task.relevant) + task.sigma * task.sigma);
}

torch::Tensor naive_estimate(const DenoiseTask& task, const DenoiseBatch& batch) {
  return batch.tokens.narrow(2, 0, task.size).mean(1);
}

}  // namespace tempera::study
