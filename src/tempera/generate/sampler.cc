#include "tempera/generate/sampler.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/config/common.h"
#include "tempera/nn/dropout.h"
#include "tempera/ops/torch.h"

namespace tempera::generate {
namespace {

void check(const SamplerOptions& options) {
  TEMPERA_CHECK(options.temperature >= 0, "temperature: ", options.temperature,
                " given, at least 0 expected");
  TEMPERA_CHECK(options.top_k >= 0, "top-k: ", options.top_k, " given, at least 0 expected");
  TEMPERA_CHECK(options.top_p > 0 && options.top_p <= 1, "top-p: ", options.top_p,
                " given, above 0 to 1 expected");
  TEMPERA_CHECK(options.min_p >= 0 && options.min_p <= 1, "min-p: ", options.min_p,
                " given, 0 to 1 expected");
  TEMPERA_CHECK(options.repetition_penalty > 0, "repetition-penalty: ", options.repetition_penalty,
                " given, above 0 expected");
}

// Below this, a temperature is that of the likeliest token alone; in float32 it might even be 0.
bool is_greedy(const SamplerOptions& options) { return options.temperature < 1e-6; }

torch::Tensor normalised(const torch::Tensor& weights) {
  return weights / weights.sum(-1, /*keepdim=*/true);
}

}  // namespace

void SamplerOptions::declare(config::Options& options) {
  options.option("sampling-temperature", temperature, config::range(0, 100),
                 "sampling temperature: divides the logits; 0: greedy");
  options.renamed("temperature",
                  "--temperature names an attention method; the temperature of sampling is "
                  "--sampling-temperature");
  options.option("top-k", top_k, config::range(0, 1e9),
                 "sample from the k most likely tokens; 0: all");
  options.option("top-p", top_p, config::above_to(0, 1),
                 "sample from the smallest set of tokens with this probability");
  options.option("min-p", min_p, config::range(0, 1),
                 "sample from tokens with at least this share of the top probability");
  options.option("repetition-penalty", repetition_penalty, config::above_to(0, 100),
                 "penalty on tokens that occurred before; 1: none");
  config::seed_option(options, seed);
}

torch::Tensor sampling_probabilities(const torch::Tensor& logits, const SamplerOptions& options) {
  check(options);
  TEMPERA_CHECK(logits.dim() == 2 && logits.size(1) > 0,
                "logits of the shape (sequences, vocabulary) expected");
  const torch::NoGradGuard no_grad;
  const auto scores = logits.to(torch::kFloat32);
  if (is_greedy(options))
    return torch::zeros_like(scores).scatter_(1, scores.argmax(1, /*keepdim=*/true), 1);
  // Sorted, so that every rule is a cut at a rank and ties are broken the same way by each.
  auto [sorted, order] = scores.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  // The largest score is taken off first: a small temperature then meets no overflow.
  auto weights = ((sorted - sorted.narrow(1, 0, 1)) / options.temperature).softmax(1);
  if (options.top_k > 0 && options.top_k < weights.size(1)) {
    weights.narrow(1, options.top_k, weights.size(1) - options.top_k).zero_();
    weights = normalised(weights);
  }
  if (options.top_p < 1) {
    // A token stays if those before it have not reached the share.
    const auto before = weights.cumsum(1) - weights;
    auto keep = before < options.top_p;
    keep.select(1, 0).fill_(true);
    weights = normalised(weights * keep);
  }
  if (options.min_p > 0) weights = weights * (weights >= options.min_p * weights.narrow(1, 0, 1));
  return torch::zeros_like(weights).scatter_(1, order, normalised(weights));
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options),
      generator_(nn::seeded_generator(static_cast<uint64_t>(options.seed), torch::kCPU)) {
  check(options);
}

torch::Tensor Sampler::sample(const torch::Tensor& logits) {
  const auto probabilities = sampling_probabilities(logits, options_).to(torch::kCPU);
  // Of the scores themselves: those of the likeliest alone are finite in any case. -inf forbids a
  // token, and NaN is the greatest of all.
  TEMPERA_CHECK(logits.amax(1).isfinite().all().item<bool>(),
                "the model's scores are not finite: its weights are damaged or it diverged");
  if (is_greedy(options_)) return probabilities.argmax(1).to(logits.device());
  // By the inverse of the sum in float64: one random number a row, and a token of probability 0 is
  // never drawn.
  const auto cumulative = probabilities.to(torch::kFloat64).cumsum(1);
  const auto total = cumulative.narrow(1, cumulative.size(1) - 1, 1).contiguous();
  auto draw = torch::rand({logits.size(0), 1}, generator_, torch::kFloat64) * total;
  // A product that rounds up to the total would lie behind the last token.
  draw = torch::minimum(draw, torch::nextafter(total, torch::zeros_like(total)));
  return torch::searchsorted(cumulative, draw, /*out_int32=*/false, /*right=*/true)
      .squeeze(1)
      .to(logits.device());
}

}  // namespace tempera::generate
