#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/data/dataset.h"
#include "tempera/nn/config.h"

// What is done to the windows of text that a calibration learns from.
namespace tempera::adapt {

// Steps with short windows have pieces of so many tokens.
inline constexpr int64_t kShortLength = 2048;

struct WindowOptions {
  double short_share = 0;
  double echo = 0;
  int64_t echo_length = 32;
  double echo_weight = 5;
  double echo_until = 1;
  int64_t spread = 0;
  int64_t spread_parts = 4;
  double spread_correction = 0;

  void declare(config::Options& options);
  // Throws UsageError where they contradict each other.
  void validate() const;
  // Throws UsageError where they do not suit the model or windows of `length` tokens in this
  // context.
  void check_fits(const nn::ModelConfig& model, int64_t length, int64_t context) const;
};

// What they are made for.
struct WindowPlan {
  int64_t context = 0;
  int64_t steps = 0;
  uint64_t seed = 0;
};

// The windows of `text` with echoes, spread, and short in some steps.
std::shared_ptr<const data::Dataset> learning_windows(std::shared_ptr<const data::Dataset> text,
                                                      const WindowOptions& options,
                                                      const WindowPlan& plan);

// A line for each thing that is done to windows of `length` tokens.
std::vector<std::string> window_lines(const WindowOptions& options, int64_t length,
                                      const WindowPlan& plan);
// {"short_share", "echo", "spread"}; null where nothing is done.
nlohmann::ordered_json to_json(const WindowOptions& options);

}  // namespace tempera::adapt
