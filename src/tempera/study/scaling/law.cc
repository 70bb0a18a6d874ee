#include "tempera/study/scaling/law.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace tempera::study::scaling {
namespace {

// Where one of E, A, B, a, b stands among the numbers that are fitted.
enum Index : size_t { kE, kA, kB, kAlpha, kBeta };

// Logarithms less their means: the five numbers then hardly lean on each other.
struct Centred {
  std::vector<double> x, y, z;  // of parameters, tokens and loss; z as it is
  double mean_x = 0, mean_y = 0;
  double least = 0, most = 0;  // of z
};

Centred centre(std::span<const Point> points) {
  Centred data;
  for (const Point& point : points) {
    data.x.push_back(std::log(point.parameters));
    data.y.push_back(std::log(point.tokens));
    data.z.push_back(std::log(point.loss));
  }
  const auto count = static_cast<double>(points.size());
  for (const double x : data.x) data.mean_x += x / count;
  for (const double y : data.y) data.mean_y += y / count;
  for (double& x : data.x) x -= data.mean_x;
  for (double& y : data.y) y -= data.mean_y;
  const auto [least, most] = std::ranges::minmax(data.z);
  data.least = least;
  data.most = most;
  return data;
}

// ln(e^E + e^(A - a x) + e^(B - b y)) and its slopes.
struct Value {
  double log_loss = 0;
  Five slopes{};
};

Value evaluate(const Five& p, double x, double y) {
  const double terms[] = {p[kE], p[kA] - p[kAlpha] * x, p[kB] - p[kBeta] * y};
  const double top = std::max({terms[0], terms[1], terms[2]});
  double shares[3];
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += shares[i] = std::exp(terms[i] - top);
  for (double& share : shares) share /= sum;
  return {.log_loss = top + std::log(sum),
          .slopes = {shares[0], shares[1], shares[2], -x * shares[1], -y * shares[2]}};
}

double huber(double residual) {
  const double size = std::abs(residual);
  return size <= kHuberWidth ? size * size / 2 : kHuberWidth * (size - kHuberWidth / 2);
}

double objective(const Centred& data, const Five& p) {
  double sum = 0;
  for (size_t i = 0; i < data.z.size(); ++i)
    sum += huber(evaluate(p, data.x[i], data.y[i]).log_loss - data.z[i]);
  return sum;
}

// Powers and constants that a loss can have; the data often leaves one of them open.
void clamp(const Centred& data, Five& p) {
  p[kE] = std::clamp(p[kE], data.least - 6, data.least);
  for (const Index i : {kA, kB}) p[i] = std::clamp(p[i], data.least - 12, data.most + 2);
  for (const Index i : {kAlpha, kBeta}) p[i] = std::clamp(p[i], 0.01, 3.0);
}

// The step of damped least squares; none where the damping is too small for one.
std::optional<Five> step(const Centred& data, const Five& p, double damping) {
  FiveByFive matrix{};
  Five right{};
  for (size_t i = 0; i < data.z.size(); ++i) {
    const Value value = evaluate(p, data.x[i], data.y[i]);
    const double residual = value.log_loss - data.z[i];
    const double weight = 1 / std::max(1.0, std::abs(residual) / kHuberWidth);
    add_square(matrix, value.slopes, weight);
    for (size_t k = 0; k < kFive; ++k) right[k] -= weight * residual * value.slopes[k];
  }
  for (size_t k = 0; k < kFive; ++k) matrix[k][k] += damping * (matrix[k][k] + 1e-9);
  return solve(matrix, right);
}

struct Found {
  Five p{};
  double value = 0;
};

Found descend(const Centred& data, Five p) {
  constexpr int kSteps = 200;
  constexpr double kLeastDamping = 1e-9, kMostDamping = 1e9;
  clamp(data, p);
  Found best{p, objective(data, p)};
  double damping = 1e-2;
  for (int i = 0; i < kSteps && damping < kMostDamping; ++i) {
    const auto change = step(data, best.p, damping);
    Five next = best.p;
    if (change)
      for (size_t k = 0; k < kFive; ++k) next[k] += (*change)[k];
    clamp(data, next);
    const double value = change ? objective(data, next) : best.value;
    if (value >= best.value) {
      damping *= 4;
      continue;
    }
    const bool settled = best.value - value < 1e-7 * best.value;
    best = {next, value};
    damping = std::max(kLeastDamping, damping / 4);
    if (settled) break;
  }
  return best;
}

// What is left of the least loss above E goes to N and D in some shares, at some powers.
std::vector<Five> starts(const Centred& data) {
  std::vector<Five> list;
  for (const double rest : {0.9, 0.6, 0.3})
    for (const double share : {0.2, 0.5, 0.8})
      for (const double alpha : {0.15, 0.35, 0.8})
        for (const double beta : {0.15, 0.35, 0.8}) {
          const double above = data.least + std::log(1 - rest);
          list.push_back({data.least + std::log(rest), above + std::log(share),
                          above + std::log(1 - share), alpha, beta});
        }
  return list;
}

bool can_tell(std::span<const Point> points, size_t fewest) {
  std::set<std::pair<double, double>> different;
  std::set<double> sizes, tokens;
  for (const Point& point : points) {
    different.emplace(point.parameters, point.tokens);
    sizes.insert(point.parameters);
    tokens.insert(point.tokens);
  }
  return different.size() >= fewest && sizes.size() > 1 && tokens.size() > 1;
}

// What A / N^a leaves: (A / rest)^(1/a).
std::optional<double> base_of(double log_factor, double power, double rest) {
  if (rest <= 0) return std::nullopt;
  return std::exp((log_factor - std::log(rest)) / power);
}

}  // namespace

double Law::loss(double parameters, double tokens) const {
  return std::exp(log_e) + std::exp(log_a - alpha * std::log(parameters)) +
         std::exp(log_b - beta * std::log(tokens));
}

std::optional<double> Law::parameters_for(double wanted, double tokens) const {
  return base_of(log_a, alpha,
                 wanted - std::exp(log_e) - std::exp(log_b - beta * std::log(tokens)));
}

std::optional<double> Law::tokens_for(double wanted, double parameters) const {
  return base_of(log_b, beta,
                 wanted - std::exp(log_e) - std::exp(log_a - alpha * std::log(parameters)));
}

Five Law::slopes(double log_parameters, double log_tokens) const {
  return evaluate({log_e, log_a, log_b, alpha, beta}, log_parameters, log_tokens).slopes;
}

std::optional<Fit> fit_law(std::span<const Point> points, const Law* near) {
  if (!can_tell(points, near ? kFewestResampled : kFewestPoints)) return std::nullopt;
  const Centred data = centre(points);
  std::vector<Five> from = starts(data);
  if (near) {
    // A few of the rest: a resample may have its least elsewhere.
    from = {from[from.size() / 2 - 1], from[from.size() - 1]};
    from.push_back({near->log_e, near->log_a - near->alpha * data.mean_x,
                    near->log_b - near->beta * data.mean_y, near->alpha, near->beta});
  }
  std::optional<Found> best;
  for (const Five& start : from) {
    const Found found = descend(data, start);
    if (!best || found.value < best->value) best = found;
  }
  const Five& p = best->p;
  return Fit{.law = {.log_e = p[kE],
                     .log_a = p[kA] + p[kAlpha] * data.mean_x,
                     .log_b = p[kB] + p[kBeta] * data.mean_y,
                     .alpha = p[kAlpha],
                     .beta = p[kBeta]},
             .objective = best->value};
}

}  // namespace tempera::study::scaling
