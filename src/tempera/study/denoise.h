#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace tempera::study {

// y ~ N(0, I) of `size` numbers. A context holds relevant tokens y + sigma * noise and others that
// are noise N(0, I) alone; behind its numbers each token has a mark, 1 if relevant and -1 if not,
// and a one. The task: y from the context.
struct DenoiseTask {
  int64_t size = 8;
  int64_t relevant = 4;
  double sigma = 0.5;
  double mark_noise = 0;  // standard deviation of what is added to the marks

  int64_t width() const { return size + 2; }
};

struct DenoiseBatch {
  torch::Tensor tokens;  // (B, relevant + noise, width), the relevant ones first
  torch::Tensor target;  // (B, size)
};

DenoiseBatch make_denoise_batch(const DenoiseTask& task, int64_t rows, int64_t noise,
                                at::Generator& random);

// Mean squared errors a number. The optimum is the mean of y given the context and which tokens are
// relevant, sum of the relevant / (relevant + sigma^2); with noisy marks it is a lower bound.
double optimal_error(const DenoiseTask& task);
// Of the mean of all tokens.
double naive_error(const DenoiseTask& task, int64_t noise);

// What these estimators give for a batch, (B, size).
torch::Tensor optimal_estimate(const DenoiseTask& task, const DenoiseBatch& batch);
torch::Tensor naive_estimate(const DenoiseTask& task, const DenoiseBatch& batch);

}  // namespace tempera::study
