#include "tempera/study/sizing.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tempera::study {
namespace {

// From small to large; each has about four times the cost of the one before.
struct Rung {
  int64_t layers, width, context, step_tokens;
};
constexpr std::array<Rung, 7> kLadder = {{{2, 64, 256, 2048},
                                          {2, 128, 256, 2048},
                                          {3, 192, 256, 4096},
                                          {4, 256, 512, 8192},
                                          {6, 384, 512, 8192},
                                          {8, 512, 512, 8192},
                                          {12, 768, 1024, 8192}}};

// Below it a smaller model mostly gets the lower loss in the same time.
constexpr double kTokensPerParameter = 5;
// Beyond it a model learns the text by heart.
constexpr double kMostPasses = 8;
constexpr int64_t kLeastSeeds = 3, kMostSeeds = 8;
constexpr int64_t kLeastSteps = 20, kLongestWarmup = 100;
constexpr int64_t kShortestContext = 32;
// The rest is for what was not measured: opening the data, the report, a machine that slows down.
constexpr double kUsedShare = 0.9;
// Of a trained token. A forward pass is a third of a step's products; scoring adds to it.
constexpr double kScoringShare = 0.5;
// Larger shapes are often faster than their cost says: how much of it at least they take.
constexpr double kBestScaling = 0.6;

double real(int64_t value) { return static_cast<double>(value); }

// Columns of a head: 32 where they divide the width.
int64_t suited_heads(int64_t width) {
  for (const int64_t size : {32, 64, 48, 40, 24, 16, 8})
    if (width % size == 0) return width / size;
  return 1;
}

int64_t suited_context(const Comparison& comparison, int64_t context) {
  const int64_t needed = comparison.past_trained ? 4 : 1;
  while (context > kShortestContext && needed * context > comparison.held_out_tokens) context /= 2;
  return context;
}

// The rung with what is given in its place; without steps.
Size size_on(const Rung& rung, const Comparison& comparison) {
  const GivenSize& given = comparison.given;
  Size size;
  size.layers = given.layers.value_or(rung.layers);
  size.width = given.width.value_or(rung.width);
  if (given.heads && !given.width) {  // the next width that these heads divide
    const int64_t unit = 8 * *given.heads;
    size.width = (size.width + unit - 1) / unit * unit;
  }
  size.heads = given.heads.value_or(suited_heads(size.width));
  size.context = given.context.value_or(suited_context(comparison, rung.context));
  size.batch = given.batch.value_or(std::max<int64_t>(1, rung.step_tokens / size.context));
  size.seeds = given.seeds.value_or(kLeastSeeds);
  size.learning_rate = given.learning_rate.value_or(3e-3 * std::sqrt(128 / real(size.width)));
  return size;
}

bool same_shape(const Size& a, const Size& b) {
  return a.layers == b.layers && a.width == b.width && a.context == b.context;
}

int64_t waves(const Comparison& comparison, int64_t seeds) {
  return (comparison.methods * seeds + comparison.workers - 1) / comparison.workers;
}

double scoring_seconds(const Comparison& comparison, const Size& size, double seconds_per_token) {
  const double trained = forward_cost(size, comparison.vocabulary, size.context);
  double sum = 0;
  for (const int64_t length : measured_lengths(comparison, size.context))
    sum += real(std::min(comparison.eval_tokens, comparison.held_out_tokens)) *
           forward_cost(size, comparison.vocabulary, length) / trained;
  return kScoringShare * seconds_per_token * sum;
}

double whole_seconds(const Comparison& comparison, const Size& size, double tokens,
                     double seconds_per_token) {
  return real(waves(comparison, size.seeds)) *
         (tokens * seconds_per_token + scoring_seconds(comparison, size, seconds_per_token));
}

// Tokens of one model's training that the time pays for.
double affordable_tokens(const Comparison& comparison, const Size& size, double seconds_per_token) {
  const double seconds = kUsedShare * comparison.seconds / real(waves(comparison, size.seeds)) -
                         scoring_seconds(comparison, size, seconds_per_token);
  return std::max(0.0, seconds / seconds_per_token);
}

// Tokens that the command asks for; none: as many as time and text allow.
std::optional<double> given_tokens(const Comparison& comparison, const Size& size) {
  if (comparison.model_tokens > 0) return real(comparison.model_tokens);
  if (comparison.given.steps) return real(*comparison.given.steps * size.step_tokens());
  return std::nullopt;
}

bool is_worth(const Comparison& comparison, const Size& size, double seconds_per_token) {
  const double affordable = affordable_tokens(comparison, size, seconds_per_token);
  const auto given = given_tokens(comparison, size);
  const double tokens =
      given.value_or(std::min(affordable, kMostPasses * real(comparison.train_tokens)));
  return tokens <= affordable &&
         tokens >= kTokensPerParameter * parameter_estimate(size, comparison.vocabulary);
}

void set_steps(const Comparison& comparison, Plan& plan) {
  const auto given = given_tokens(comparison, plan.size);
  const double tokens =
      given.value_or(std::min(affordable_tokens(comparison, plan.size, plan.seconds_per_token),
                              kMostPasses * real(comparison.train_tokens)));
  auto steps = static_cast<int64_t>(tokens / real(plan.size.step_tokens()));
  if (!given) {
    steps = std::max(steps, kLeastSteps);
    if (steps >= 100) steps -= steps % 10;
  }
  // Where tokens or stages end the training, no number of steps does.
  plan.size.steps = comparison.model_tokens > 0 ? 0 : comparison.given.steps.value_or(steps);
  plan.size.warmup =
      comparison.given.warmup.value_or(std::clamp<int64_t>(steps / 10, 1, kLongestWarmup));
  plan.tokens = comparison.model_tokens > 0 ? comparison.model_tokens
                                            : plan.size.steps * plan.size.step_tokens();
}

// More seeds where workers would idle, or where the text has no use for the time.
void add_seeds(const Comparison& comparison, Plan& plan) {
  const auto total = [&](int64_t seeds) {
    Size size = plan.size;
    size.seeds = seeds;
    return whole_seconds(comparison, size, real(plan.tokens), plan.seconds_per_token);
  };
  int64_t& seeds = plan.size.seeds;
  while (!comparison.given.seeds && seeds < kMostSeeds &&
         (total(seeds + 1) <= kUsedShare * comparison.seconds || total(seeds + 1) == total(seeds)))
    ++seeds;
}

}  // namespace

double forward_cost(const Size& size, int64_t vocabulary, int64_t length) {
  // A causal row sees half of the others, once for the scores and once for the values.
  return parameter_estimate(size, vocabulary) + real(size.layers * size.width * length);
}

double parameter_estimate(const Size& size, int64_t vocabulary) {
  return real(size.width) * (12 * real(size.layers * size.width) + real(vocabulary));
}

Size default_size() {
  Plan plan{.size = size_on(kLadder[1], {.held_out_tokens = int64_t{1} << 20})};
  plan.size.steps = 1000;
  plan.size.warmup = kLongestWarmup;
  return plan.size;
}

std::vector<int64_t> measured_lengths(const Comparison& comparison, int64_t context) {
  std::vector<int64_t> lengths{context};
  for (const int64_t factor : {2, 4})
    if (comparison.past_trained && factor * context <= comparison.held_out_tokens)
      lengths.push_back(factor * context);
  return lengths;
}

Plan fit(const Comparison& comparison, const Speed& speed) {
  Plan plan;
  for (const Rung& rung : kLadder) {
    const Size size = size_on(rung, comparison);
    const bool first = plan.seconds_per_token == 0;
    if (!first) {
      if (same_shape(size, plan.size)) continue;
      const auto cost = [&](const Size& s) {
        return forward_cost(s, comparison.vocabulary, s.context);
      };
      if (!is_worth(comparison, size,
                    kBestScaling * plan.seconds_per_token * cost(size) / cost(plan.size)))
        break;
    }
    const double seconds_per_token = speed(size);
    if (!first && !is_worth(comparison, size, seconds_per_token)) break;
    plan.size = size;
    plan.seconds_per_token = seconds_per_token;
  }
  set_steps(comparison, plan);
  add_seeds(comparison, plan);
  plan.seconds = whole_seconds(comparison, plan.size, real(plan.tokens), plan.seconds_per_token);
  return plan;
}

Plan fit_like(const Plan& plan, Comparison comparison, double seconds) {
  comparison.seconds = seconds;
  const double known = forward_cost(plan.size, comparison.vocabulary, plan.size.context);
  return fit(comparison, [&](const Size& size) {
    return plan.seconds_per_token * forward_cost(size, comparison.vocabulary, size.context) / known;
  });
}

}  // namespace tempera::study
