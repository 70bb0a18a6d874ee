#include <algorithm>
#include <string>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/text_table.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"
#include "tempera/study/compare.h"

namespace tempera::study {
namespace {

// Those of some kinds of data alone.
constexpr std::pair<Metric MethodResults::*, const char*> kMoreMetrics[] = {
    {&MethodResults::bleu, "BLEU"},
    {&MethodResults::chrf, "chrF"},
    {&MethodResults::f1_macro, "F1 %, mean over the classes"}};

bool is_phonebook(const Results& results) { return results.task == "phonebook"; }
bool is_text(const Results& results) { return results.task == "text"; }
// A paired test takes two seeds, and a method to test.
bool has_tests(const Results& results) { return results.seeds > 1 && results.methods.size() > 1; }

// What grows from set to set.
std::string size_name(const Results& results) {
  const auto& task = results.task;
  const bool files = task == "text" || task == "translation" || task == "classes";
  return is_phonebook(results) ? "entries" : files ? "tokens a row" : "size";
}

// A metric against the size of the held-out set.
plot::LineChart size_chart(const Results& results, Metric MethodResults::*metric,
                           const std::string& title, plot::Axis y) {
  return chart_by_size(
      metric_of(results.methods, metric),
      {.title = title, .x = {.label = size_name(results), .log = true}, .y = std::move(y)});
}

plot::LineChart loss_chart(const Results& results) {
  // Few points, so that a page of many methods stays small.
  constexpr size_t kMostPoints = 250, kFewest = 10;
  size_t longest = 0;
  for (const auto& [method, result] : results.methods)
    if (!result.loss_curves.empty()) longest = std::max(longest, result.loss_curves[0].size());
  const size_t together = std::max(kFewest, (longest + kMostPoints - 1) / kMostPoints);
  plot::LineChart chart{.title = "Training loss (first seed)",
                        .x = {.label = "step"},
                        .y = {.label = concat("loss, mean of ", together, " steps"), .log = true}};
  for (const auto& [method, result] : results.methods) {
    plot::Series series{.name = method};
    const Curve curve = result.loss_curves.empty() ? Curve() : result.loss_curves[0];
    for (size_t i = 0; i + together <= curve.size(); i += together) {
      double sum = 0;
      for (size_t j = i; j < i + together; ++j) sum += curve[j].second;
      series.x.push_back(static_cast<double>(curve[i].first));
      series.y.push_back(sum / static_cast<double>(together));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::Table test_table(const Results& results) {
  const auto methods =
      metric_of(results.methods,  // what the methods are judged by
                is_text(results) ? &MethodResults::loss : &MethodResults::accuracy);
  plot::Table table{
      .caption = concat("Paired t-test of the ", is_text(results) ? "loss" : "accuracy",
                        " against the first method: p-values"),
      .header = {"method"}};
  for (const auto& size : sizes_of(methods)) table.header.push_back(size);
  for (size_t i = 1; i < methods.size(); ++i) {
    std::vector<plot::Cell> row{plot::Cell::of(methods[i].name)};
    for (const auto& [size, summary] : methods[i].value)
      row.push_back(plot::Cell::of(summary.p_against_first.value_or(1), {}, 3));
    table.rows.push_back(std::move(row));
  }
  return table;
}

plot::Table cost_table(const Results& results) {
  plot::Table table{
      .caption = "What each method costs",
      .header = {"method", "parameters", "of the temperature", "steps", "seconds of training"}};
  const auto count = [](int64_t number) {
    return plot::Cell{.text = std::to_string(number), .number = true};
  };
  for (const auto& [method, result] : results.methods)
    table.rows.push_back({plot::Cell::of(method), count(result.parameters),
                          count(result.temperature_parameters), count(result.steps),
                          plot::Cell::of(result.train_seconds.mean, result.train_seconds.sd, 1)});
  return table;
}

void explain_phonebook(plot::HtmlReport& report) {
  report.paragraph(
      "The task: read a book of names and numbers, then give the number of a name. The models are "
      "trained on books of 8 to 32 entries and tested on the lengths in the tables. Guessing gives "
      "6.25 %.");
  report.heading("The idea behind it");
  report.paragraph(
      "Queries and keys are normalised without a gain, so the logits are bounded. Plain attention "
      "then cannot keep its "
      "weight on the right entry as the book grows: the weight thins out over the other entries. A "
      "temperature below 1 "
      "(focal), one that is learned, or one that grows with the number of visible keys (ssa) keeps "
      "it there.");
}

std::vector<std::string> not_shown(const Results& results) {
  std::vector<std::string> items;
  if (is_phonebook(results))
    items = {"a gain at the length of training: all methods are about equal there",
             "that the gap stays without QK-norm: with a tuned learning rate plain attention is "
             "then about as good",
             "that the gap is as wide with a learned QK gain: a longer training closes most of it",
             "anything about rotary positions: with them all methods fail at 1,024 entries",
             "anything about large models: this is one layer of width 64"};
  else
    items = {"larger models, longer trainings and other data: the order of methods can change",
             "learning rates of each method's own: all have the same one"};
  if (results.methods.size() > 2)
    items.push_back(
        "what a test of one method planned before would say: the best of several is chosen by "
        "its result, so its p-value is too good");
  return items;
}

std::string asked(const Results& results) {
  std::string names;
  for (const auto& [name, result] : results.methods) names += (names.empty() ? "" : ", ") + name;
  return concat("Which attention is better on ",
                is_phonebook(results) ? "the phone-book task" : results.task, ": ", names,
                "? Trained on the same data, from the same first weights, with the same budget, ",
                results.seeds, results.seeds == 1 ? " seed each." : " seeds each.");
}

std::string answer(const Results& results) {
  const std::string by = size_name(results);
  if (is_text(results))
    return verdict(
        metric_of(results.methods, &MethodResults::loss),
        {.what = "the held-out loss", .size = by, .higher_is_better = false, .decimals = 4});
  return verdict(metric_of(results.methods, &MethodResults::accuracy),
                 {.what = "the accuracy", .unit = " %", .size = by});
}

plot::Figure overview(const Results& results) {
  const MethodResults& first = results.methods.front().value;
  plot::Figure figure{.title = "", .panels = {}, .columns = 2};
  figure.panels.emplace_back(
      is_text(results) ? size_chart(results, &MethodResults::loss, "Loss on held-out text",
                                    {.label = "nats a token"})
                       : size_chart(results, &MethodResults::accuracy, "Accuracy on held-out data",
                                    {.label = "%", .min = 0, .max = 100}));
  if (!first.answer_weight.empty())
    figure.panels.emplace_back(size_chart(results, &MethodResults::answer_weight,
                                          "Attention weight on the right entry",
                                          {.label = "weight", .min = 0, .max = 1}));
  if (!first.query_scale.empty())
    figure.panels.emplace_back(size_chart(results, &MethodResults::query_scale,
                                          "Inverse temperature of the queries",
                                          {.label = "mean of a_q"}));
  figure.panels.emplace_back(loss_chart(results));
  return figure;
}

// The loss of each method less the first one's, over the same seeds.
std::string difference_text(const Results& results) {
  const auto methods = metric_of(results.methods, &MethodResults::loss);
  std::vector<std::string> head = {"method"};
  for (const auto& size : sizes_of(methods)) head.push_back(size);
  TextTable table(std::move(head));
  for (size_t i = 1; i < methods.size(); ++i) {
    std::vector<std::string> row = {methods[i].name};
    for (size_t set = 0; set < methods[i].value.size(); ++set) {
      const Summary& loss = methods[i].value[set].value;
      const double difference = loss.mean - methods[0].value.at(set).value.mean;
      row.push_back(concat(difference < 0 ? "" : "+", fixed(difference, 4), " (p ",
                           fixed(loss.p_against_first.value(), 3), ")"));
    }
    table.add(std::move(row));
  }
  return concat("\nloss against ", methods[0].name,
                ", below 0 is better; p of the paired test over ", results.seeds, " seeds\n",
                table.text());
}

void explain_size(plot::HtmlReport& report, const Results& results) {
  if (!results.sizing) return;
  report.heading("What was chosen, and what it can show");
  report.list(results.sizing->says);
}

}  // namespace

std::string results_text(const Results& results) {
  const std::string over = concat(over_seeds(results.seeds), ", by ", size_name(results), "\n");
  if (is_text(results))
    return concat("held-out loss", over, metric_text(results.methods, &MethodResults::loss, 4),
                  has_tests(results) ? difference_text(results) : "");
  std::string text =
      concat("accuracy %", over, metric_text(results.methods, &MethodResults::accuracy, 1),
             "\nloss", over, metric_text(results.methods, &MethodResults::loss, 3));
  for (const auto& [metric, name] : kMoreMetrics)
    if (!(results.methods.front().value.*metric).empty())
      text += concat("\n", name, over, metric_text(results.methods, metric, 2));
  return text;
}

plot::HtmlReport page_of(const Results& results, const std::string& before) {
  TEMPERA_CHECK(!results.methods.empty(), "the results have no method");
  plot::HtmlReport report("Does a temperature help?");
  report.summary({.asked = asked(results),
                  .answer = before + answer(results),
                  .not_shown = not_shown(results)});
  const std::string by = size_name(results);
  const auto table = [&](Metric MethodResults::*metric, const std::string& caption, int decimals) {
    if (const auto rows = metric_of(results.methods, metric); !rows.empty())
      report.table(metric_table(rows, concat(caption, ", by ", by), decimals));
  };
  report.figure(overview(results),
                "Means over the seeds; the bands are 95 % intervals of the mean.");
  table(&MethodResults::accuracy, "Accuracy in %, mean ± standard deviation", 1);
  table(&MethodResults::answer_weight, "Attention weight on the right entry", 3);
  table(&MethodResults::loss, "Loss", 3);
  for (const auto& [metric, name] : kMoreMetrics) table(metric, name, 2);
  if (has_tests(results)) report.table(test_table(results));
  report.table(cost_table(results));
  if (is_phonebook(results)) explain_phonebook(report);
  explain_size(report, results);
  say_how_made(report, results.tempera, results.settings, "tempera compare");
  return report;
}

void write_report(const Results& results, const std::filesystem::path& path) {
  page_of(results).save(path);
  plot::save(overview(results), std::filesystem::path(path).replace_extension(".png"));
}

}  // namespace tempera::study
