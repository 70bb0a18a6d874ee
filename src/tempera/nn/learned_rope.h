#pragma once

#include <torch/types.h>

#include "tempera/nn/positions.h"

// Rotary frequencies that are learned, a number for each, which all layers share.
namespace tempera::nn {

inline constexpr const char* kRopeShift = "rope_shift";  // the parameter, (pairs), 0 at the start

// Frequencies whose angle is small within this many tokens move as a whole with a shift, faster
// ones by the angle that it makes there: else they would turn all near tokens away at once.
inline constexpr double kShiftReach = 1024;

// The frequencies f exp(shift / max(1, reach f)) of the start f, all (pairs), float64 but the
// shift.
torch::Tensor shifted_frequencies(const torch::Tensor& start, const torch::Tensor& shift);

// The same as factors, with nothing left to learn.
RopeConfig settled_rope(const RopeConfig& rope, int64_t size, const torch::Tensor& shift);

// As RotaryTable, with gradients to the shift of the frequencies, and with nothing from the host.
Angles learned_angles(const torch::Tensor& frequencies, double amplitude, int64_t length,
                      const torch::Tensor& positions);

// As ops::rotary, with gradients to the tables too.
torch::Tensor learned_rotary(const torch::Tensor& x, const Angles& angles);

}  // namespace tempera::nn
