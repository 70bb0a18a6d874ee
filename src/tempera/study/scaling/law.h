#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>

#include "tempera/study/scaling/five.h"

// L(N, D) = E + A / N^a + B / D^b: the loss of a model of N parameters after D tokens (Hoffmann et
// al., "Training compute-optimal large language models", 2022).
namespace tempera::study::scaling {

struct Law {
  double log_e = 0, log_a = 0, log_b = 0;  // of E, A and B
  double alpha = 0, beta = 0;

  double loss(double parameters, double tokens) const;
  // The size, or the tokens, with which the loss is reached while the other stays; none where no
  // size is enough.
  std::optional<double> parameters_for(double loss, double tokens) const;
  std::optional<double> tokens_for(double loss, double parameters) const;
  // How ln L moves with ln E, ln A, ln B, a and b.
  Five slopes(double log_parameters, double log_tokens) const;
};

// Of Hoffmann et al.: what such a law looks like, before anything is measured.
inline const Law kUsualLaw{.log_e = std::log(1.69),
                           .log_a = std::log(406.4),
                           .log_b = std::log(410.7),
                           .alpha = 0.34,
                           .beta = 0.28};

struct Point {
  double parameters = 0, tokens = 0, loss = 0;
};

struct Fit {
  Law law;
  double objective = 0;  // sum of Huber's losses of ln L
};

// Residuals of ln L beyond it count by their size and not by their square.
inline constexpr double kHuberWidth = 1e-3;
// Of different (N, D), for five numbers.
inline constexpr size_t kFewestPoints = 6;
// The same in a resample, which has many of its points twice.
inline constexpr size_t kFewestResampled = 4;

// The law with the least sum of Huber's losses of ln L: damped least squares with weights made
// anew in each step, from many starts, or from `near` and few. None where the points cannot tell:
// fewer than kFewestPoints different ones (near `near`, kFewestResampled), or all of one size or of
// one number of tokens.
std::optional<Fit> fit_law(std::span<const Point> points, const Law* near = nullptr);

}  // namespace tempera::study::scaling
