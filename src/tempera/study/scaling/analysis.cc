#include "tempera/study/scaling/analysis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "tempera/data/random.h"
#include "tempera/study/statistics.h"

namespace tempera::study::scaling {
namespace {

constexpr int64_t kResamples = 400;
constexpr size_t kFewestModels = 8;    // for a correlation
constexpr size_t kFewestContexts = 3;  // for a slope

// Everything but method and seed.
using Kind = std::tuple<int64_t, nn::QkNorm, Shape, int64_t>;
Kind kind_of(const Cell& cell) { return {cell.context, cell.qk_norm, cell.shape, cell.tokens}; }

// The models of one kind: by method, by seed.
struct Models {
  Cell cell;
  std::map<std::string, std::map<int64_t, const JobResult*>> by_method;
};

// In the order of the context, the norm, the size and the tokens.
std::vector<Models> kinds_of(const std::vector<JobResult>& results) {
  std::map<Kind, Models> kinds;
  for (const JobResult& result : results) {
    const Cell& cell = result.job.cell;
    if (result.job.purpose != Purpose::kCell || !result.loss()) continue;
    Models& models = kinds[kind_of(cell)];
    models.cell = cell;
    models.by_method[cell.method][cell.seed] = &result;
  }
  std::vector<Models> list;
  for (auto& [kind, models] : kinds) list.push_back(std::move(models));
  std::ranges::stable_sort(list, {}, [](const Models& models) {
    const Cell& cell = models.cell;
    return std::tuple(cell.context, cell.qk_norm, cell.shape.parameters(), cell.tokens);
  });
  return list;
}

LossCell loss_cell(const Models& models, const std::vector<std::string>& methods) {
  LossCell cell{.parameters = static_cast<double>(models.cell.shape.parameters()),
                .tokens = static_cast<double>(models.cell.tokens),
                .losses = std::vector<std::vector<double>>(methods.size())};
  int64_t seeds = 0;
  for (const auto& [method, by_seed] : models.by_method)
    seeds = std::max(seeds, by_seed.rbegin()->first + 1);
  for (size_t m = 0; m < methods.size(); ++m) {
    const auto found = models.by_method.find(methods[m]);
    if (found == models.by_method.end()) continue;
    cell.losses[m].assign(static_cast<size_t>(seeds), std::numeric_limits<double>::quiet_NaN());
    for (const auto& [seed, result] : found->second)
      cell.losses[m][static_cast<size_t>(seed)] = *result->loss();
  }
  return cell;
}

void add_slices(const std::vector<Models>& kinds, Analysis& analysis) {
  for (const Models& models : kinds) {
    const Cell& cell = models.cell;
    if (analysis.slices.empty() || analysis.slices.back().context != cell.context ||
        analysis.slices.back().qk_norm != cell.qk_norm)
      analysis.slices.push_back({.context = cell.context,
                                 .qk_norm = cell.qk_norm,
                                 .shapes = {},
                                 .cells = {},
                                 .laws = {}});
    analysis.slices.back().shapes.push_back(cell.shape);
    analysis.slices.back().cells.push_back(loss_cell(models, analysis.methods));
  }
  for (Slice& slice : analysis.slices)
    slice.laws = study_laws(slice.cells, analysis.methods.size(), kResamples);
}

// Of a method less the first, by seed, where both have it.
std::vector<std::pair<int64_t, double>> paired(const Models& models, const std::string& first,
                                               const std::string& method) {
  std::vector<std::pair<int64_t, double>> pairs;
  const auto base = models.by_method.find(first), other = models.by_method.find(method);
  if (base == models.by_method.end() || other == models.by_method.end()) return pairs;
  for (const auto& [seed, result] : other->second)
    if (const auto match = base->second.find(seed); match != base->second.end())
      pairs.emplace_back(seed, *result->loss() - *match->second->loss());
  return pairs;
}

void add_differences(const std::vector<Models>& kinds, Analysis& analysis) {
  for (const Models& models : kinds)
    for (size_t m = 1; m < analysis.methods.size(); ++m) {
      Difference difference{.cell = models.cell, .seeds = {}};
      difference.cell.method = analysis.methods[m];
      for (const auto& [seed, value] : paired(models, analysis.methods[0], analysis.methods[m]))
        difference.seeds.push_back(value);
      if (difference.seeds.empty()) continue;
      difference.mean = mean(difference.seeds);
      difference.half_width = confidence_half_width(difference.seeds);
      analysis.differences.push_back(std::move(difference));
    }
}

ByLength by_length(const Cell& cell, const std::map<int64_t, const JobResult*>& by_seed) {
  ByLength row{.cell = cell, .lengths = {}, .losses = {}, .recall = {}};
  const JobResult& any = *by_seed.begin()->second;
  row.seeds = static_cast<int64_t>(by_seed.size());
  for (size_t i = 0; i < any.losses.size(); ++i) {
    std::vector<double> losses, recall;
    for (const auto& [seed, result] : by_seed) {
      if (i < result->losses.size()) losses.push_back(result->losses[i].loss);
      if (i < result->recall.size()) recall.push_back(result->recall[i].accuracy);
    }
    row.lengths.push_back(any.losses[i].length);
    row.losses.push_back(mean(losses));
    row.recall.push_back(mean(recall));
  }
  return row;
}

void add_tasks(const Cell& cell, const std::map<int64_t, const JobResult*>& by_seed,
               Analysis& analysis) {
  const JobResult& any = *by_seed.begin()->second;
  for (size_t i = 0; i < any.tasks.size(); ++i) {
    std::vector<double> values;
    for (const auto& [seed, result] : by_seed)
      if (i < result->tasks.size()) values.push_back(result->tasks[i].value);
    analysis.tasks.push_back({.cell = cell,
                              .task = any.tasks[i].task,
                              .metric = any.tasks[i].metric,
                              .mean = mean(values),
                              .half_width = confidence_half_width(values)});
  }
}

void add_measurements(const std::vector<Models>& kinds, Analysis& analysis) {
  for (const Models& models : kinds)
    for (const auto& method : analysis.methods) {
      const auto found = models.by_method.find(method);
      if (found == models.by_method.end()) continue;
      Cell cell = models.cell;
      cell.method = method;
      analysis.lengths.push_back(by_length(cell, found->second));
      add_tasks(cell, found->second, analysis);
    }
}

double slope_of(const std::vector<std::pair<double, double>>& points) {
  double x_mean = 0, y_mean = 0, products = 0, squares = 0;
  for (const auto& [x, y] : points) {
    x_mean += x / static_cast<double>(points.size());
    y_mean += y / static_cast<double>(points.size());
  }
  for (const auto& [x, y] : points) {
    products += (x - x_mean) * (y - y_mean);
    squares += (x - x_mean) * (x - x_mean);
  }
  return products / squares;
}

// Of one size, tokens and norm at all its trained lengths.
std::optional<ContextGain> context_gain(const std::vector<const Models*>& lengths,
                                        const std::string& first, const std::string& method) {
  ContextGain gain{.shape = lengths[0]->cell.shape,
                   .tokens = lengths[0]->cell.tokens,
                   .qk_norm = lengths[0]->cell.qk_norm,
                   .method = method,
                   .contexts = {},
                   .differences = {}};
  std::map<int64_t, std::vector<std::pair<double, double>>> by_seed;
  for (const Models* models : lengths) {
    std::vector<double> values;
    for (const auto& [seed, value] : paired(*models, first, method)) {
      values.push_back(value);
      by_seed[seed].emplace_back(std::log2(static_cast<double>(models->cell.context)), value);
    }
    if (values.empty()) continue;
    gain.contexts.push_back(models->cell.context);
    gain.differences.push_back(mean(values));
  }
  std::vector<double> slopes;
  for (const auto& [seed, points] : by_seed)
    if (points.size() >= kFewestContexts) slopes.push_back(slope_of(points));
  if (slopes.empty()) return std::nullopt;
  gain.slope = mean(slopes);
  gain.half_width = confidence_half_width(slopes);
  return gain;
}

void add_context_gains(const std::vector<Models>& kinds, Analysis& analysis) {
  std::map<std::tuple<Shape, int64_t, nn::QkNorm>, std::vector<const Models*>> by_size;
  for (const Models& models : kinds)
    by_size[{models.cell.shape, models.cell.tokens, models.cell.qk_norm}].push_back(&models);
  for (const auto& [size, lengths] : by_size)
    for (size_t m = 1; m < analysis.methods.size(); ++m)
      if (auto gain = context_gain(lengths, analysis.methods[0], analysis.methods[m]))
        analysis.context_gains.push_back(*std::move(gain));
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> result(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;  // equal ones share the mean of their ranks
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) result[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return result;
}

void add_entropy(const std::vector<JobResult>& results, Analysis& analysis) {
  std::vector<double> entropy, growth;
  for (const JobResult& result : results) {
    if (!result.loss() || !result.entropy || result.losses.size() < 2) continue;
    const auto length = static_cast<double>(result.losses.front().length);
    const EntropyPoint point{result.job.cell.method, *result.entropy / std::log(length),
                             result.losses.back().loss - result.losses.front().loss};
    entropy.push_back(point.entropy);
    growth.push_back(point.growth);
    analysis.entropy.push_back(point);
  }
  if (entropy.size() < kFewestModels) return;
  const uint64_t stream = data::derive_seed(0, "study/scaling/entropy");
  std::vector<double> resampled;
  for (uint64_t i = 0; i < kResamples; ++i) {
    data::RandomStream random(stream, i);
    std::vector<double> x, y;
    for (size_t j = 0; j < entropy.size(); ++j) {
      const size_t drawn = random.below(static_cast<uint32_t>(entropy.size()));
      x.push_back(entropy[drawn]);
      y.push_back(growth[drawn]);
    }
    if (const double value = rank_correlation(x, y); std::isfinite(value))
      resampled.push_back(value);
  }
  analysis.entropy_correlation = middle(rank_correlation(entropy, growth), std::move(resampled));
}

}  // namespace

double rank_correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto a = ranks(x), b = ranks(y);
  const double a_mean = mean(a), b_mean = mean(b);
  double products = 0, a_squares = 0, b_squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    products += (a[i] - a_mean) * (b[i] - b_mean);
    a_squares += (a[i] - a_mean) * (a[i] - a_mean);
    b_squares += (b[i] - b_mean) * (b[i] - b_mean);
  }
  return products / std::sqrt(a_squares * b_squares);
}

Analysis analyse(const Plan& plan, const std::vector<JobResult>& results) {
  Analysis analysis;
  analysis.methods = plan.methods;
  const auto kinds = kinds_of(results);
  add_slices(kinds, analysis);
  add_differences(kinds, analysis);
  add_measurements(kinds, analysis);
  add_context_gains(kinds, analysis);
  add_entropy(results, analysis);
  for (const JobResult& result : results) {
    analysis.most_passes = std::max(analysis.most_passes, result.passes);
    if (result.job.purpose == Purpose::kCell && result.outcome != Outcome::kDone)
      analysis.failures.push_back(result);
  }
  return analysis;
}

}  // namespace tempera::study::scaling
