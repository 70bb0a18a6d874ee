#include "tempera/eval/report.h"

#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <sstream>

#include "tempera/eval/bootstrap.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string bucket_text(const PositionBucket& bucket) {
  return std::to_string(bucket.first) + "-" + std::to_string(bucket.last);
}

// A number that is not finite is null in JSON.
double number(const Json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

// Of the perplexity.
Estimate perplexity_estimate(const TextScores& scores) {
  std::vector<double> places(scores.blocks.size());
  std::iota(places.begin(), places.end(), 0.0);
  return bootstrap(places, [&](std::span<const double> drawn) {
    double loss = 0, tokens = 0;
    for (const double place : drawn) {
      const LossBlock& block = scores.blocks[static_cast<size_t>(place)];
      loss += block.loss;
      tokens += static_cast<double>(block.tokens);
    }
    return std::exp(loss / tokens);
  });
}

}  // namespace

Json to_json(const std::vector<SizeScores>& list) {
  Json rows = Json::array();
  for (const auto& [size, count, scores] : list) {
    Json row{{"size", size},
             {"rows", count},
             {"accuracy", 100 * scores.accuracy},
             {"loss", scores.loss},
             {"targets", scores.targets}};
    if (scores.answer_weight) row["answer_weight"] = *scores.answer_weight;
    if (!scores.query_scale.empty()) row["query_scale"] = scores.query_scale;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<SizeScores> size_scores_of(const Json& json) {
  std::vector<SizeScores> list;
  for (const Json& row : json) {
    SizeScores set{.size = row.at("size"), .rows = row.at("rows"), .scores = {}};
    set.scores.accuracy = number(row.at("accuracy")) / 100;
    set.scores.loss = number(row.at("loss"));
    set.scores.targets = row.at("targets");
    if (row.contains("answer_weight")) set.scores.answer_weight = number(row["answer_weight"]);
    if (row.contains("query_scale"))
      for (const Json& scale : row["query_scale"]) set.scores.query_scale.push_back(number(scale));
    list.push_back(std::move(set));
  }
  return list;
}

std::string to_text(const std::vector<SizeScores>& list) {
  std::ostringstream text;
  text << std::right << std::setw(8) << "size" << std::setw(7) << "rows" << std::setw(12)
       << "accuracy %" << std::setw(9) << "loss" << std::setw(24) << "weight on the answer"
       << std::setw(12) << "mean a_q"
       << "\n"
       << std::fixed;
  for (const auto& [size, rows, scores] : list) {
    text << std::setw(8) << size << std::setw(7) << rows << std::setprecision(1) << std::setw(12)
         << 100 * scores.accuracy << std::setprecision(4) << std::setw(9) << scores.loss;
    if (scores.answer_weight)
      text << std::setprecision(3) << std::setw(24) << *scores.answer_weight << std::setw(12)
           << mean_of(scores.query_scale);
    text << "\n";
  }
  return text.str();
}

plot::Figure to_figure(const std::string& task, const std::vector<SizeScores>& list) {
  plot::Series accuracy{.name = "accuracy", .markers = true};
  plot::Series weight{.name = "weight", .markers = true};
  for (const auto& [size, rows, scores] : list) {
    accuracy.x.push_back(static_cast<double>(size));
    accuracy.y.push_back(100 * scores.accuracy);
    weight.x.push_back(static_cast<double>(size));
    weight.y.push_back(scores.answer_weight.value_or(std::nan("")));
  }
  plot::Figure figure{.title = task};
  figure.panels.emplace_back(plot::LineChart{.title = "Accuracy",
                                             .x = {.label = "size", .log = true},
                                             .y = {.label = "%", .min = 0, .max = 100},
                                             .series = {accuracy}});
  if (!list.empty() && list[0].scores.answer_weight)
    figure.panels.emplace_back(plot::LineChart{.title = "Attention on the answer",
                                               .x = {.label = "size", .log = true},
                                               .y = {.label = "weight", .min = 0, .max = 1},
                                               .series = {weight}});
  figure.columns = figure.panels.size();
  return figure;
}

Json to_json(const TextScores& scores) {
  Json buckets = Json::array();
  for (const auto& bucket : scores.by_position)
    buckets.push_back({{"first", bucket.first},
                       {"last", bucket.last},
                       {"tokens", bucket.tokens},
                       {"loss", bucket.loss},
                       {"perplexity", std::exp(bucket.loss)}});
  Json json{{"loss", scores.loss}, {"perplexity", scores.perplexity}};
  // One block alone has no spread.
  if (scores.blocks.size() > 1) {
    const Estimate estimate = perplexity_estimate(scores);
    json["perplexity_interval"] = {estimate.low, estimate.high};
  }
  json["tokens"] = scores.tokens;
  json["by_position"] = std::move(buckets);
  return json;
}

TextScores text_scores_of(const Json& json) {
  TextScores scores{.loss = number(json.at("loss")),
                    .perplexity = number(json.at("perplexity")),
                    .tokens = json.at("tokens"),
                    .by_position = {}};
  for (const Json& bucket : json.at("by_position"))
    scores.by_position.push_back({.first = bucket.at("first"),
                                  .last = bucket.at("last"),
                                  .tokens = bucket.at("tokens"),
                                  .loss = number(bucket.at("loss"))});
  return scores;
}

std::string to_text(const TextScores& scores) {
  std::ostringstream text;
  text << std::right << std::setw(16) << "tokens seen" << std::setw(12) << "predicted"
       << std::setw(9) << "loss" << std::setw(13) << "perplexity"
       << "\n"
       << std::fixed;
  const auto row = [&](const std::string& name, int64_t tokens, double loss) {
    text << std::setw(16) << name << std::setw(12) << tokens << std::setprecision(4) << std::setw(9)
         << loss << std::setprecision(2) << std::setw(13) << std::exp(loss) << "\n";
  };
  for (const auto& bucket : scores.by_position)
    row(bucket_text(bucket), bucket.tokens, bucket.loss);
  row("all", scores.tokens, scores.loss);
  return text.str();
}

plot::Figure to_figure(const std::string& name, const TextScores& scores) {
  plot::Series series{.name = "perplexity", .markers = true};
  for (const auto& bucket : scores.by_position) {
    series.x.push_back(std::sqrt(static_cast<double>(bucket.first * bucket.last)));
    series.y.push_back(std::exp(bucket.loss));
  }
  plot::Figure figure{.title = name};
  figure.panels.emplace_back(plot::LineChart{.title = "Perplexity by tokens seen",
                                             .x = {.label = "tokens seen", .log = true},
                                             .y = {.label = "perplexity"},
                                             .series = {series}});
  return figure;
}

}  // namespace tempera::eval
