#include "tempera/adapt/rope_rule.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/nn/positions.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

using nn::RopeConfig;
using nn::RopeScaling;

struct RuleEntry {
  const char* name;
  RopeRule rule;
  double low, high;  // of its ramp; 0: it has none
  bool sharper;      // multiplies the logits as YaRN does
};

constexpr RuleEntry kRules[] = {{"rotations", RopeRule::kRotations, 1, 128, true},
                                {"yarn", RopeRule::kYarn, 1, 32, true},
                                {"ntk", RopeRule::kNtk, 0, 0, false},
                                {"base", RopeRule::kBase, 0, 0, false},
                                {"linear", RopeRule::kLinear, 0, 0, false},
                                {"llama3", RopeRule::kLlama3, 1, 4, false},
                                {"none", RopeRule::kNone, 0, 0, false}};

const RuleEntry& entry_of(RopeRule rule) {
  return *std::ranges::find(kRules, rule, &RuleEntry::rule);
}

// The rule with all of its numbers.
struct Numbers {
  RuleEntry rule;
  double stretch, low, high, logits;
};

// What YaRN multiplies the logits by.
double yarn_logits(double stretch) {
  return std::pow(0.1 * std::log(std::max(stretch, 1.0)) + 1, 2);
}

Numbers numbers_of(const RopeOptions& options, double stretch) {
  Numbers numbers{.rule = entry_of(options.rule),
                  .stretch = options.stretch > 0 ? options.stretch : stretch,
                  .low = 0,
                  .high = 0,
                  .logits = 1};
  if (options.rule == RopeRule::kNone) numbers.stretch = 1;
  numbers.low = options.low > 0 ? options.low : numbers.rule.low;
  numbers.high = options.high > 0 ? options.high : numbers.rule.high;
  if (numbers.rule.sharper) numbers.logits = yarn_logits(numbers.stretch);
  if (options.logits > 0) numbers.logits = options.logits;
  return numbers;
}

std::vector<double> values_of(const torch::Tensor& frequencies) {
  const auto plain = frequencies.to(torch::kFloat64).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

// In the words of other programs, of frequencies that nothing has scaled yet.
RopeConfig in_words(RopeConfig rope, const Numbers& numbers, double base, int64_t trained,
                    int64_t columns) {
  rope.scaling = RopeScaling::kNone;
  rope.factor = numbers.stretch;
  rope.original_context = trained;
  switch (numbers.rule.rule) {
    case RopeRule::kLinear:
      rope.scaling = RopeScaling::kLinear;
      rope.original_context = 0;
      break;
    case RopeRule::kYarn:
      rope.scaling = RopeScaling::kYarn;
      rope.beta_slow = numbers.low;
      rope.beta_fast = numbers.high;
      // 0 stands for YaRN's own: GGUF has no words for another.
      rope.attention_factor =
          numbers.logits == yarn_logits(numbers.stretch) ? 0 : std::sqrt(numbers.logits);
      break;
    case RopeRule::kLlama3:
      rope.scaling = RopeScaling::kLlama3;
      rope.low_factor = numbers.low;
      rope.high_factor = numbers.high;
      break;
    case RopeRule::kNtk: {
      const auto count = static_cast<double>(columns);
      rope.base *= std::pow(numbers.stretch, count / (count - 2));
      break;
    }
    case RopeRule::kBase:
      rope.base = base > 0 ? base : rope.base * numbers.stretch * numbers.stretch;
      break;
    case RopeRule::kRotations:
    case RopeRule::kNone:
      break;
  }
  if (rope.scaling == RopeScaling::kNone) {
    rope.factor = 1;
    rope.original_context = 0;
  }
  return rope;
}

// By how often a frequency turns in the trained length.
std::vector<double> ramped(std::vector<double> frequencies, const Numbers& numbers,
                           int64_t trained) {
  for (double& frequency : frequencies) {
    const double turns = static_cast<double>(trained) * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - numbers.low) / (numbers.high - numbers.low), 0.0, 1.0);
    frequency *= kept + (1 - kept) / numbers.stretch;
  }
  return frequencies;
}

// A factor for each frequency of a model whose scaling stays the starting point.
RopeConfig as_factors(const nn::ModelConfig& config, const RopeConfig& words,
                      const Numbers& numbers, int64_t trained) {
  const int64_t columns = config.rotary_size();
  RopeConfig plain = config.rope;
  plain.scaling = RopeScaling::kNone;
  const auto bare = values_of(nn::rotary_frequencies(plain, columns, trained, trained));
  auto wanted = values_of(nn::rotary_frequencies(config.rope, columns, trained, trained));
  if (numbers.rule.rule == RopeRule::kRotations || numbers.rule.rule == RopeRule::kLlama3) {
    wanted = ramped(std::move(wanted), numbers, trained);
  } else if (numbers.rule.rule != RopeRule::kNone) {
    const auto rule = values_of(nn::rotary_frequencies(words, columns, trained, trained));
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] *= rule[i] / bare[i];
  }
  RopeConfig rope = {.base = plain.base, .fraction = plain.fraction};
  rope.scaling = RopeScaling::kFactors;
  rope.original_context = trained;
  rope.attention_factor = nn::rotary_amplitude(config.rope) * std::sqrt(numbers.logits);
  for (size_t i = 0; i < wanted.size(); ++i) rope.factors.push_back(bare[i] / wanted[i]);
  return rope;
}

}  // namespace

void RopeOptions::declare(config::Options& options) {
  config::EnumChoices<RopeRule> names;
  for (const auto& entry : kRules) names.names.emplace_back(entry.name, entry.rule);
  options.option("rope", rule, names,
                 "with --context: which RoPE frequencies are stretched: by their rotations in the "
                 "trained length (rotations), by their index (yarn), by a larger base (ntk, base), "
                 "all (linear), as in Llama 3 (llama3), none");
  options.option("rope-scale", stretch, config::range(0, 1e6),
                 "context stretch factor; 0: new context length / trained length", {.rare = true});
  options.option("rope-low", low, config::range(0, 1e6),
                 "rotations, yarn, llama3: rotations up to which a frequency is fully stretched; "
                 "0: 1",
                 {.rare = true});
  options.option("rope-high", high, config::range(0, 1e6),
                 "rotations, yarn, llama3: rotations from which a frequency is kept; 0: 128, 32, 4",
                 {.rare = true});
  options.option("rope-base", base, config::range(0, 1e12),
                 "with --rope base: the base; 0: the model's times stretch^2");
  options.option("rope-logits", logits, config::range(0, 1e6),
                 "multiplies the attention logits; 0: (0.1 ln stretch + 1)^2 with rotations and "
                 "yarn, otherwise 1",
                 {.rare = true});
}

void RopeOptions::validate() const {
  const auto& entry = entry_of(rule);
  if (base > 0 && rule != RopeRule::kBase)
    throw UsageError(concat("--rope-base is for --rope base; --rope ", entry.name, " given"));
  if ((low > 0 || high > 0) && entry.high == 0)
    throw UsageError(concat("--rope-low and --rope-high are the ends of a ramp, which --rope ",
                            entry.name, " does not have"));
  const auto numbers = numbers_of(*this, 2);
  if (entry.high > 0 && !(numbers.low < numbers.high))
    throw UsageError(concat("--rope-low: ", numbers.low, " given, a number below --rope-high (",
                            numbers.high, ") expected"));
  if (base > 0 && !(base > 1))
    throw UsageError(concat("--rope-base: ", base, " given, a number above 1 expected"));
  if (stretch > 0 && (rule == RopeRule::kNone || base > 0))
    throw UsageError("--rope-scale: neither --rope none nor a base that is given has a stretch");
  if (stretch > 0 && stretch < 1)
    throw UsageError(concat("--rope-scale: ", stretch, " given, at least 1 expected"));
}

const char* RopeOptions::name() const { return entry_of(rule).name; }

int64_t trained_context(const nn::ModelConfig& config) {
  if (config.rope.scaling != RopeScaling::kYarn) return config.context;
  const double read = config.rope.factor * static_cast<double>(config.rope.original_context);
  return std::max<int64_t>(config.context, std::llround(read));
}

StretchedRope stretch_rope(const nn::ModelConfig& config, int64_t context,
                           const RopeOptions& options) {
  const int64_t trained = trained_context(config);
  if (config.position != nn::PositionKind::kRope)
    throw UsageError("--context: the model has no rotary positions, so they cannot be stretched");
  if (context < trained)
    throw UsageError(concat("--context: ", context, " given, the model was trained at ", trained,
                            "; to calibrate at a shorter length, give --length"));
  const int64_t columns = config.rotary_size();
  if (options.rule == RopeRule::kNtk && columns <= 2)
    throw UsageError("--rope ntk: the model has a single rotary frequency; give another rule");
  const auto numbers =
      numbers_of(options, static_cast<double>(context) / static_cast<double>(trained));
  const bool unscaled =
      config.rope.scaling == RopeScaling::kNone || config.rope.scaling == RopeScaling::kDynamic;
  const auto words = in_words(config.rope, numbers, options.base, trained, columns);
  const bool has_words = options.rule != RopeRule::kRotations &&
                         (numbers.logits == 1 || options.rule == RopeRule::kYarn);
  StretchedRope result{.rope = config.rope, .stretch = numbers.stretch, .logits = numbers.logits};
  if (unscaled && has_words)
    result.rope = words;
  else if (options.rule != RopeRule::kNone || numbers.logits != 1)
    result.rope = as_factors(config, words, numbers, trained);
  auto checked = config;
  checked.context = context;
  checked.rope = result.rope;
  checked.validate();
  return result;
}

nn::RopeConfig learnable_rope(const nn::ModelConfig& config) {
  if (config.position != nn::PositionKind::kRope)
    throw UsageError("--learn rope: the model has no rotary positions");
  if (!config.rope.short_factors.empty())
    throw UsageError(
        "--learn rope: the model has two sets of frequencies, of short and of long texts; give "
        "--context");
  const auto numbers = numbers_of({.rule = RopeRule::kNone}, 1);
  auto rope = as_factors(config, config.rope, numbers, trained_context(config));
  rope.learned = true;
  return rope;
}

nlohmann::ordered_json to_json(const StretchedRope& stretched, const RopeOptions& options,
                               int64_t rotary_size) {
  RopeConfig plain{.base = stretched.rope.base};
  const auto bare = values_of(nn::rotary_frequencies(plain, rotary_size, 0, 0));
  const int64_t any = stretched.rope.original_context + 1;
  const auto now = values_of(nn::rotary_frequencies(stretched.rope, rotary_size, any, any));
  auto factors = nlohmann::ordered_json::array();
  for (size_t i = 0; i < now.size(); ++i) factors.push_back(bare[i] / now[i]);
  return {{"rule", options.name()},
          {"stretch", stretched.stretch},
          {"logit_factor", stretched.logits},
          {"base", stretched.rope.base},
          {"factors", std::move(factors)}};
}

}  // namespace tempera::adapt
