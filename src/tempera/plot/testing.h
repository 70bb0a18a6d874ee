#pragma once

#include <limits>

namespace tempera::plot {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace tempera::plot
