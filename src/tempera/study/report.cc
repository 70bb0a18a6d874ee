#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"
#include "tempera/study/compare.h"
#include "tempera/study/tables.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

// Those of some kinds of data alone.
constexpr std::pair<const char*, const char*> kMoreMetrics[] = {
    {"bleu", "BLEU"}, {"chrf", "chrF"}, {"f1_macro", "F1 %, mean over the classes"}};

bool is_phonebook(const Json& results) { return results.at("task") == "phonebook"; }
bool is_text(const Json& results) { return results.at("task") == "text"; }

// What the methods are judged by.
const char* main_metric(const Json& results) { return is_text(results) ? "loss" : "accuracy"; }

// What grows from set to set.
std::string size_name(const Json& results) {
  const auto& task = results.at("task");
  const bool files = task == "text" || task == "translation" || task == "classes";
  return is_phonebook(results) ? "entries" : files ? "tokens a row" : "size";
}

// A metric against the size of the held-out set.
plot::LineChart size_chart(const Json& results, const std::string& metric, const std::string& title,
                           plot::Axis y) {
  const Json& methods = results.at("results");
  plot::LineChart chart{
      .title = title, .x = {.label = size_name(results), .log = true}, .y = std::move(y)};
  for (const auto& size : sizes_of(methods, metric)) chart.x.ticks.push_back(std::stod(size));
  return metric_chart(methods, metric, std::move(chart));
}

plot::LineChart loss_chart(const Json& results) {
  plot::LineChart chart{.title = "Training loss (first seed)",
                        .x = {.label = "step"},
                        .y = {.label = "loss, mean of 10 steps", .log = true}};
  for (const auto& [method, result] : results.at("results").items()) {
    plot::Series series{.name = method};
    const Json& curve = result.at("loss_curves").at(0);
    constexpr size_t kMean = 10;
    for (size_t i = 0; i + kMean <= curve.size(); i += kMean) {
      double sum = 0;
      for (size_t j = i; j < i + kMean; ++j) sum += curve[j][1].get<double>();
      series.x.push_back(curve[i][0].get<double>());
      series.y.push_back(sum / kMean);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::Table test_table(const Json& results) {
  const std::string metric = main_metric(results);
  plot::Table table{
      .caption = concat("Paired t-test of the ", metric, " against the first method: p-values"),
      .header = {"method"}};
  for (const auto& size : sizes_of(results.at("results"), metric)) table.header.push_back(size);
  for (const auto& [method, result] : results.at("results").items()) {
    if (method == results.at("results").begin().key()) continue;
    std::vector<plot::Cell> row{plot::Cell::of(method)};
    for (const auto& [size, values] : result.at(metric).items())
      row.push_back(plot::Cell::of(values.at("p_against_first").get<double>(), {}, 3));
    table.rows.push_back(std::move(row));
  }
  return table;
}

plot::Table cost_table(const Json& results) {
  plot::Table table{
      .caption = "What each method costs",
      .header = {"method", "parameters", "of the temperature", "steps", "seconds of training"}};
  for (const auto& [method, result] : results.at("results").items()) {
    const auto count = [&](const char* key) {
      return plot::Cell{.text = std::to_string(result.at(key).get<int64_t>()), .number = true};
    };
    const Json& seconds = result.at("train_seconds");
    table.rows.push_back(
        {plot::Cell::of(method), count("parameters"), count("temperature_parameters"),
         count("steps"),
         plot::Cell::of(seconds.at("mean").get<double>(), seconds.at("sd").get<double>(), 1)});
  }
  return table;
}

void explain_phonebook(plot::HtmlReport& report) {
  report.paragraph(
      "The task: read a book of names and numbers, then give the number of a name. The models are "
      "trained on books of 8 "
      "to 32 entries and tested on books of up to 1,024. Guessing gives 6.25 %.");
  report.heading("What it shows");
  report.paragraph(
      "Queries and keys are normalised without a gain, so the logits are bounded. Plain attention "
      "then cannot keep its "
      "weight on the right entry as the book grows: the weight thins out over the other entries. A "
      "temperature below 1 "
      "(focal), one that is learned, or one that grows with the number of visible keys (ssa) keeps "
      "it there.");
  report.heading("What it does not show");
  report.list(
      {"a gain at the length of training: all methods are about equal there",
       "that the gap stays without QK-norm: with a tuned learning rate plain attention is then "
       "about as good",
       "that the gap is as wide with a learned QK gain: a longer training closes most of it",
       "anything about rotary positions: with them all methods fail at 1,024 entries",
       "anything about large models: this is one layer of width 64"});
}

plot::Figure overview(const Json& results) {
  plot::Figure figure{.title = "", .panels = {}, .columns = 2};
  figure.panels.emplace_back(
      is_text(results)
          ? size_chart(results, "loss", "Loss on held-out text", {.label = "nats a token"})
          : size_chart(results, "accuracy", "Accuracy on held-out data",
                       {.label = "%", .min = 0, .max = 100}));
  if (results.at("results").begin().value().contains("answer_weight"))
    figure.panels.emplace_back(size_chart(results, "answer_weight",
                                          "Attention weight on the right entry",
                                          {.label = "weight", .min = 0, .max = 1}));
  if (results.at("results").begin().value().contains("query_scale"))
    figure.panels.emplace_back(size_chart(
        results, "query_scale", "Inverse temperature of the queries", {.label = "mean of a_q"}));
  figure.panels.emplace_back(loss_chart(results));
  return figure;
}

// The loss of each method less the first one's, over the same seeds.
std::string difference_text(const Json& results) {
  const Json& methods = results.at("results");
  const std::string first = methods.begin().key();
  std::vector<std::vector<std::string>> lines = {{"method"}};
  for (const auto& size : sizes_of(methods, "loss")) lines[0].push_back(size);
  for (const auto& [method, result] : methods.items()) {
    if (method == first) continue;
    lines.push_back({method});
    for (const auto& [size, row] : result.at("loss").items()) {
      const double difference = row.at("mean").get<double>() -
                                methods.at(first).at("loss").at(size).at("mean").get<double>();
      lines.back().push_back(concat(difference < 0 ? "" : "+", study::fixed(difference, 4), " (p ",
                                    study::fixed(row.at("p_against_first"), 3), ")"));
    }
  }
  return concat("\nloss against ", first, ", below 0 is better; p of the paired test over ",
                results.at("seeds").get<int64_t>(), " seeds\n", aligned(lines));
}

void explain_size(plot::HtmlReport& report, const Json& results) {
  if (!results.contains("sizing")) return;
  report.heading("What was chosen, and what it can show");
  report.list(results.at("sizing").at("says").get<std::vector<std::string>>());
}

}  // namespace

std::string results_text(const Json& results) {
  std::ostringstream text;
  const std::string over =
      concat(over_seeds(results.at("seeds")), ", by ", size_name(results), "\n");
  if (is_text(results)) {
    text << "held-out loss" << over << metric_text(results.at("results"), "loss", 4);
    if (results.at("seeds").get<int64_t>() > 1 && results.at("results").size() > 1)
      text << difference_text(results);
    return text.str();
  }
  text << "accuracy %" << over;
  text << metric_text(results.at("results"), "accuracy", 1);
  text << "\nloss" << over;
  text << metric_text(results.at("results"), "loss", 3);
  for (const auto& [metric, name] : kMoreMetrics) {
    if (!results.at("results").begin().value().contains(metric)) continue;
    text << "\n" << name << over << metric_text(results.at("results"), metric, 2);
  }
  return text.str();
}

void write_report(const Json& results, const std::filesystem::path& path) {
  plot::HtmlReport report("Does a temperature help?");
  report.paragraph(
      "Attention methods trained on the same data, from the same first weights, with the same "
      "budget; " +
      std::to_string(results.at("seeds").get<int64_t>()) +
      (results.at("seeds") == 1 ? " seed each." : " seeds each."));
  const std::string by = size_name(results);
  report.figure(overview(results),
                "Means over the seeds; the bands are 95 % intervals of the mean.");
  report.table(metric_table(results.at("results"), "accuracy",
                            "Accuracy in %, mean ± standard deviation, by " + by, 1));
  if (results.at("results").begin().value().contains("answer_weight"))
    report.table(metric_table(results.at("results"), "answer_weight",
                              "Attention weight on the right entry, by " + by, 3));
  report.table(metric_table(results.at("results"), "loss", "Loss, by " + by, 3));
  for (const auto& [metric, name] : kMoreMetrics)
    if (results.at("results").begin().value().contains(metric))
      report.table(metric_table(results.at("results"), metric, concat(name, ", by ", by), 2));
  if (results.at("seeds").get<int64_t>() > 1 && results.at("results").size() > 1)
    report.table(test_table(results));
  report.table(cost_table(results));
  if (is_phonebook(results)) explain_phonebook(report);
  explain_size(report, results);
  say_how_made(report, results, "tempera compare");
  report.save(path);
  plot::save(overview(results), std::filesystem::path(path).replace_extension(".png"));
}

}  // namespace tempera::study
