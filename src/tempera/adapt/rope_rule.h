#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "tempera/config/options.h"
#include "tempera/nn/config.h"

// Which rotary frequencies a longer context gets.
namespace tempera::adapt {

enum class RopeRule {
  kRotations,  // kept by how often a frequency turns in the trained length
  kYarn,       // kept by the place of the frequency, as other programs compute YaRN
  kNtk,        // "NTK-aware": a larger base, the slowest frequency divided by the stretch
  kBase,       // another base
  kLinear,     // all divided by the stretch
  kLlama3,     // as kRotations, with Llama 3's narrow ramp and its logits as they are
  kNone        // as they are
};

// Zeros stand for the rule's own numbers.
struct RopeOptions {
  RopeRule rule = RopeRule::kRotations;
  double stretch = 0;  // by which slow frequencies are divided; 0: new context / trained
  double low = 0;      // rotations up to which a frequency is divided by the whole stretch
  double high = 0;     // rotations from which on it stays
  double base = 0;     // of the rule base
  double logits = 0;   // what all attention logits are multiplied by

  bool operator==(const RopeOptions&) const = default;
  void declare(config::Options& options);
  // Throws UsageError where a number is not one of the rule's.
  void validate() const;
  const char* name() const;
};

// The length that the model reads as it is. YaRN's factor says it where the context of the
// configuration is still the one from before.
int64_t trained_context(const nn::ModelConfig& config);

// What a rule made of a model's positions.
struct StretchedRope {
  nn::RopeConfig rope;
  double stretch = 1;
  double logits = 1;  // beside what the model had
};

// The frequencies that the model has, whatever scaled them, are where the rule begins. What the
// scalings of other programs can say is said so, the rest as a factor for each frequency. Throws
// UsageError where the model's positions cannot be stretched so.
StretchedRope stretch_rope(const nn::ModelConfig& config, int64_t context,
                           const RopeOptions& options);

// The model's own frequencies as factors that can be learned. Throws UsageError where it has none,
// or two sets of them.
nn::RopeConfig learnable_rope(const nn::ModelConfig& config);

// {"rule", "stretch", "logit_factor", "base", "factors"}
nlohmann::ordered_json to_json(const StretchedRope& stretched, const RopeOptions& options,
                               int64_t rotary_size);

}  // namespace tempera::adapt
