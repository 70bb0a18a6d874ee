#include "tempera/eval/choices.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

// The first of the highest.
template <class Score>
size_t best(const std::vector<Likelihood>& answers, Score score) {
  size_t found = 0;
  for (size_t i = 1; i < answers.size(); ++i)
    if (score(i) > score(found)) found = i;
  return found;
}

Metric& add_metric(ChoiceScores& scores, const char* name) {
  return scores.metrics.emplace_back(Metric{.name = name, .examples = {}, .estimate = {}});
}

void add_guess(ChoiceScores& scores, int64_t seed) {
  Metric& accuracy = add_metric(scores, "acc");
  for (const auto& answer : scores.answers) accuracy.examples.push_back(answer[0].greedy ? 1 : 0);
  accuracy.estimate = bootstrap_mean(accuracy.examples, seed);
  Metric& perplexity = add_metric(scores, "perplexity");
  for (const auto& answer : scores.answers)
    perplexity.examples.push_back(answer[0].log_probability);
  const auto statistic = [](std::span<const double> examples) {
    double sum = 0;
    for (const double example : examples) sum += example;
    return std::exp(-sum / static_cast<double>(examples.size()));
  };
  perplexity.estimate = bootstrap(perplexity.examples, statistic, seed);
  perplexity.higher_is_better = false;
}

void add_accuracy(ChoiceScores& scores, const char* name, bool norm, int64_t seed) {
  Metric& metric = add_metric(scores, name);
  for (size_t i = 0; i < scores.examples.size(); ++i) {
    const auto& example = scores.examples[i];
    const auto& answers = scores.answers[i];
    const size_t chosen = best(answers, [&](size_t choice) {
      const double score = answers[choice].log_probability;
      return norm ? score / static_cast<double>(example.characters[choice]) : score;
    });
    metric.examples.push_back(chosen == example.gold ? 1 : 0);
  }
  metric.estimate = bootstrap_mean(metric.examples, seed);
}

Json sample_of(const ChoiceScores& scores, size_t index) {
  const auto& example = scores.examples[index];
  Json arguments = Json::array(), responses = Json::array();
  for (size_t i = 0; i < example.contexts.size(); ++i) {
    const auto& answer = scores.answers[index][i];
    arguments.push_back({example.contexts[i], example.continuations[i]});
    responses.push_back(Json::array({answer.log_probability, answer.greedy}));
  }
  Json sample{{"doc_id", index},
              {"target", example.gold},
              {"arguments", std::move(arguments)},
              {"filtered_resps", std::move(responses)},
              {"filter", "none"}};
  for (const auto& metric : scores.metrics) sample[metric.name] = metric.examples[index];
  return sample;
}

}  // namespace

std::vector<Request> requests_of(std::span<const ChoiceExample> examples,
                                 const text::Tokenizer& tokenizer) {
  std::vector<Request> requests;
  for (size_t i = 0; i < examples.size(); ++i)
    for (size_t c = 0; c < examples[i].contexts.size(); ++c)
      requests.push_back(
          encode_pair(tokenizer, examples[i].contexts[c], examples[i].continuations[c], i));
  return requests;
}

ChoiceScores summarize(const ChoiceTask& task, std::vector<ChoiceExample> examples,
                       std::span<const Likelihood> likelihoods, int64_t seed) {
  ChoiceScores scores{
      .task = task.name, .examples = std::move(examples), .answers = {}, .metrics = {}};
  for (const auto& example : scores.examples) {
    const size_t count = example.contexts.size();
    TEMPERA_CHECK(count <= likelihoods.size(), "fewer likelihoods than choices given");
    scores.answers.emplace_back(likelihoods.begin(),
                                likelihoods.begin() + static_cast<std::ptrdiff_t>(count));
    likelihoods = likelihoods.subspan(count);
  }
  if (task.guess)
    add_guess(scores, seed);
  else
    add_accuracy(scores, "acc", false, seed);
  if (task.norm) add_accuracy(scores, "acc_norm", true, seed);
  return scores;
}

Json to_json(const ChoiceScores& scores, bool samples) {
  Json results{{"alias", scores.task}}, intervals = Json::object(), higher = Json::object();
  for (const auto& [name, examples, estimate, higher_is_better] : scores.metrics) {
    results[name + ",none"] = estimate.value;
    results[name + "_stderr,none"] = estimate.standard_error;
    intervals[name] = {estimate.low, estimate.high};
    higher[name] = higher_is_better;
  }
  const size_t count = scores.examples.size();
  Json document{{"results", {{scores.task, std::move(results)}}},
                {"intervals", {{scores.task, std::move(intervals)}}},
                {"higher_is_better", {{scores.task, std::move(higher)}}},
                {"n-shot", {{scores.task, 0}}},
                {"n-samples", {{scores.task, {{"original", count}, {"effective", count}}}}}};
  if (!samples) return document;
  Json list = Json::array();
  for (size_t i = 0; i < count; ++i) list.push_back(sample_of(scores, i));
  document["samples"] = {{scores.task, std::move(list)}};
  return document;
}

std::string to_text(const ChoiceScores& scores) {
  std::ostringstream text;
  text << scores.task << ", " << scores.examples.size() << " examples\n"
       << std::right << std::setw(12) << "metric" << std::setw(10) << "value" << std::setw(10)
       << "stderr" << std::setw(20) << "95 % interval"
       << "\n"
       << std::fixed << std::setprecision(4);
  for (const auto& metric : scores.metrics) {
    std::ostringstream interval;
    interval << std::fixed << std::setprecision(4) << metric.estimate.low << " - "
             << metric.estimate.high;
    text << std::setw(12) << metric.name << std::setw(10) << metric.estimate.value << std::setw(10)
         << metric.estimate.standard_error << std::setw(20) << interval.str() << "\n";
  }
  return text.str();
}

ChoiceSummary choice_summary_of(const Json& json) {
  const Json& tasks = json.at("results");
  TEMPERA_CHECK(tasks.is_object() && tasks.size() == 1, "the results of one task expected");
  const std::string task = tasks.begin().key();
  const Json& results = tasks.begin().value();
  ChoiceSummary summary{
      .task = task, .count = json.at("n-samples").at(task).at("effective"), .metrics = {}};
  for (const auto& [name, higher] : json.at("higher_is_better").at(task).items()) {
    const Json& interval = json.at("intervals").at(task).at(name);
    summary.metrics.push_back({.name = name,
                               .estimate = {.value = results.at(name + ",none"),
                                            .standard_error = results.at(name + "_stderr,none"),
                                            .low = interval.at(0),
                                            .high = interval.at(1)},
                               .higher_is_better = higher.get<bool>()});
  }
  return summary;
}

plot::Figure to_figure(const ChoiceScores& scores) {
  ChoiceSummary summary{
      .task = scores.task, .count = static_cast<int64_t>(scores.examples.size()), .metrics = {}};
  for (const auto& [name, examples, estimate, higher] : scores.metrics)
    summary.metrics.push_back({name, estimate, higher});
  return to_figure(summary);
}

plot::Figure to_figure(const ChoiceSummary& summary) {
  plot::BarChart chart{.title = std::to_string(summary.count) + " examples",
                       .y = {.label = "% right", .min = 0, .max = 100}};
  plot::BarSeries bars{.name = summary.task};
  for (const auto& metric : summary.metrics) {
    if (!metric.higher_is_better) continue;
    chart.categories.push_back(metric.name);
    bars.values.push_back(100 * metric.estimate.value);
    bars.spread.push_back(50 * (metric.estimate.high - metric.estimate.low));
  }
  chart.series.push_back(std::move(bars));
  plot::Figure figure{.title = summary.task};
  figure.panels.emplace_back(std::move(chart));
  return figure;
}

}  // namespace tempera::eval
