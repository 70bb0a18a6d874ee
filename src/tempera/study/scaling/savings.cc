#include "tempera/study/scaling/savings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::study::scaling {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// One of the cells, and which of its seeds count.
struct Draw {
  size_t cell;
  std::vector<size_t> seeds;
};

std::vector<Draw> everything(std::span<const LossCell> cells) {
  std::vector<Draw> draws;
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    size_t seeds = 0;
    for (const auto& losses : cells[cell].losses) seeds = std::max(seeds, losses.size());
    draws.push_back({cell, {}});
    for (size_t seed = 0; seed < seeds; ++seed) draws.back().seeds.push_back(seed);
  }
  return draws;
}

std::vector<Draw> resample(const std::vector<Draw>& all, data::RandomStream& random) {
  const auto any = [&](size_t count) { return random.below(static_cast<uint32_t>(count)); };
  std::vector<Draw> draws;
  for (size_t i = 0; i < all.size(); ++i) {
    const Draw& from = all[any(all.size())];
    draws.push_back({from.cell, {}});
    for (size_t seed = 0; seed < from.seeds.size(); ++seed)
      draws.back().seeds.push_back(from.seeds[any(from.seeds.size())]);
  }
  return draws;
}

std::vector<Point> points_of(std::span<const LossCell> cells, const std::vector<Draw>& draws,
                             size_t method) {
  std::vector<Point> points;
  for (const Draw& draw : draws) {
    const LossCell& cell = cells[draw.cell];
    const auto& losses = cell.losses[method];
    for (const size_t seed : draw.seeds)
      if (seed < losses.size() && std::isfinite(losses[seed]))
        points.push_back({cell.parameters, cell.tokens, losses[seed]});
  }
  return points;
}

struct Shares {
  double parameters = 0, tokens = 0;
};

// Of the baseline's size and tokens, for its loss.
Shares shares(const Law& base, const Law& law, double parameters, double tokens) {
  const double wanted = base.loss(parameters, tokens);
  return {law.parameters_for(wanted, tokens).value_or(kInfinite) / parameters,
          law.tokens_for(wanted, parameters).value_or(kInfinite) / tokens};
}

// The laws of one resample; none where it cannot tell of all methods that the whole tells of.
std::optional<std::vector<std::optional<Law>>> fit_resample(std::span<const LossCell> cells,
                                                            const std::vector<Draw>& draws,
                                                            const LawStudy& whole) {
  std::vector<std::optional<Law>> laws(whole.laws.size());
  for (size_t method = 0; method < laws.size(); ++method) {
    if (!whole.laws[method]) continue;
    const auto fit = fit_law(points_of(cells, draws, method), &whole.laws[method]->law);
    if (!fit) return std::nullopt;
    laws[method] = fit->law;
  }
  return laws;
}

MethodLaw describe(std::span<const LossCell> cells, size_t method, const Law& law) {
  MethodLaw described{.law = law};
  double squares = 0;
  int64_t count = 0;
  for (const LossCell& cell : cells) {
    double sum = 0;
    int64_t seeds = 0;
    for (const double loss : cell.losses[method]) {
      if (!std::isfinite(loss)) continue;
      const double residual = std::log(loss / law.loss(cell.parameters, cell.tokens));
      sum += residual;
      squares += residual * residual;
      ++seeds;
    }
    count += seeds;
    described.residuals.push_back(seeds > 0 ? sum / static_cast<double>(seeds)
                                            : std::numeric_limits<double>::quiet_NaN());
  }
  described.spread = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, count)));
  return described;
}

// What the resamples gave for one method.
struct Resampled {
  std::vector<double> e, a, b, alpha, beta, parameters, tokens;

  void add(const Law& law, const Shares& share) {
    e.push_back(std::exp(law.log_e));
    a.push_back(std::exp(law.log_a));
    b.push_back(std::exp(law.log_b));
    alpha.push_back(law.alpha);
    beta.push_back(law.beta);
    parameters.push_back(share.parameters);
    tokens.push_back(share.tokens);
  }
};

struct Range {
  double least = kInfinite, most = -kInfinite;
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// Of the sizes and tokens at which a method has a loss.
struct Measured {
  Range parameters, tokens;
};

Measured measured(std::span<const LossCell> cells, size_t method) {
  Measured found;
  for (const LossCell& cell : cells) {
    if (std::ranges::none_of(cell.losses[method], [](double loss) { return std::isfinite(loss); }))
      continue;
    found.parameters.add(cell.parameters);
    found.tokens.add(cell.tokens);
  }
  return found;
}

Saving saving(double share, std::vector<double> resampled, double at, const Range& range) {
  Saving made{.share = share, .interval = middle(share, std::move(resampled))};
  made.told = !made.interval.holds(1);
  const double leads_to = share * at;
  made.extrapolated = !(leads_to >= range.least && leads_to <= range.most);
  return made;
}

void set_intervals(MethodLaw& method, Resampled& found) {
  method.e = middle(std::exp(method.law.log_e), std::move(found.e));
  method.a = middle(std::exp(method.law.log_a), std::move(found.a));
  method.b = middle(std::exp(method.law.log_b), std::move(found.b));
  method.alpha = middle(method.law.alpha, std::move(found.alpha));
  method.beta = middle(method.law.beta, std::move(found.beta));
}

void set_savings(std::span<const LossCell> cells, LawStudy& study,
                 std::vector<Resampled>& resampled) {
  for (size_t method = 0; method < study.laws.size(); ++method) {
    if (!study.laws[method]) continue;
    set_intervals(*study.laws[method], resampled[method]);
    if (method == 0 || !study.laws[0]) continue;
    const Shares share =
        shares(study.laws[0]->law, study.laws[method]->law, study.parameters, study.tokens);
    const Measured range = measured(cells, method);
    study.savings[method] = MethodSavings{
        .parameters = saving(share.parameters, std::move(resampled[method].parameters),
                             study.parameters, range.parameters),
        .tokens =
            saving(share.tokens, std::move(resampled[method].tokens), study.tokens, range.tokens)};
  }
}

// The largest cell by size, then by tokens.
void set_reference(std::span<const LossCell> cells, LawStudy& study) {
  const auto& largest = *std::ranges::max_element(cells, [](const auto& a, const auto& b) {
    return std::pair(a.parameters, a.tokens) < std::pair(b.parameters, b.tokens);
  });
  study.parameters = largest.parameters;
  study.tokens = largest.tokens;
}

// "12 % fewer", "30 % more", "more than 10 times as many"
std::string share_text(double share) {
  constexpr double kMany = 10;
  if (!std::isfinite(share)) return "more than there can be";
  if (share > kMany) return "more than 10 times as many";
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %% %s", 100 * std::abs(1 - share),
                share <= 1 ? "fewer" : "more");
  return text;
}

}  // namespace

LawStudy study_laws(std::span<const LossCell> cells, size_t methods, int64_t resamples,
                    uint64_t seed) {
  LawStudy study;
  study.laws.resize(methods);
  study.savings.resize(methods);
  if (cells.empty()) return study;
  set_reference(cells, study);
  const auto all = everything(cells);
  for (size_t method = 0; method < methods; ++method)
    if (const auto fit = fit_law(points_of(cells, all, method)))
      study.laws[method] = describe(cells, method, fit->law);
  if (std::ranges::none_of(study.laws, [](const auto& law) { return law.has_value(); }))
    return study;
  std::vector<Resampled> resampled(methods);
  const uint64_t stream = data::derive_seed(seed, "study/scaling/bootstrap");
  // Some resamples have too few different cells; so many in a row that it cannot be by chance end
  // it.
  for (uint64_t i = 0; study.resamples < resamples && i < static_cast<uint64_t>(20 * resamples);
       ++i) {
    data::RandomStream random(stream, i);
    const auto laws = fit_resample(cells, resample(all, random), study);
    if (!laws) continue;
    ++study.resamples;
    for (size_t method = 0; method < methods; ++method) {
      if (!(*laws)[method]) continue;
      const Law& base = (*laws)[0] ? *(*laws)[0] : *(*laws)[method];
      resampled[method].add(*(*laws)[method],
                            shares(base, *(*laws)[method], study.parameters, study.tokens));
    }
  }
  set_savings(cells, study, resampled);
  return study;
}

Interval middle(double value, std::vector<double> values) {
  if (values.empty()) return {value, -kInfinite, kInfinite};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const auto last = static_cast<double>(values.size() - 1);
    return values[static_cast<size_t>(std::lround(share * last))];
  };
  return {value, at(0.025), at(0.975)};
}

std::string saving_text(const Saving& saving) {
  const std::string range =
      concat(share_text(saving.interval.low), " to ", share_text(saving.interval.high));
  if (!saving.told) return concat("no difference that can be told (", range, ")");
  return concat(share_text(saving.share), " (", range, ")",
                saving.extrapolated ? ", extrapolated" : "");
}

}  // namespace tempera::study::scaling
