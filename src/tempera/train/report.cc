#include "tempera/train/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/shell.h"
#include "tempera/train/history.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPoints = 200;
// A validation that is worse than the best by less is chance.
constexpr double kWorse = 1.005;
constexpr double kShareOfTime = 0.01;

std::string text_in(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string()
             ? object[name].get<std::string>()
             : "";
}

const Json& setting(const Json& object, const char* name) {
  static const Json kNothing = Json::object();
  return object.is_object() && object.contains(name) ? object[name] : kNothing;
}

int64_t count_in(const Json& object, const char* name) {
  const Json& value = setting(object, name);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// Of loss and perplexity.
std::string rounded(double value) {
  return plot::Cell::of(value, {}, std::abs(value) < 100 ? 3 : 1).text;
}

std::string method_text(const Json& settings) {
  const std::string name = text_in(setting(settings, "temperature"), "method");
  return name.empty() || name == "softmax" ? "plain attention (softmax)"
                                           : concat("temperature ", name);
}

std::string data_text(const Json& settings) {
  const std::string task = text_in(setting(settings, "task"), "name");
  if (!task.empty()) return concat("the built-in task ", task);
  std::vector<std::string> files;
  for (const char* kind : {"text", "chat", "labelled", "source"}) {
    const Json& list = setting(settings, kind);
    if (!list.is_array()) continue;
    for (const Json& file : list)
      if (file.is_string()) files.push_back(fs::path(file.get<std::string>()).filename().string());
  }
  if (files.empty()) return "its data";
  return files.size() == 1 ? files[0] : concat(files[0], " and ", files.size() - 1, " more files");
}

std::string budget_text(const Json& settings) {
  std::string text;
  const auto add = [&](const std::string& budget) {
    text += concat(text.empty() ? ", for " : " or ", budget);
  };
  if (const int64_t steps = count_in(settings, "steps"); steps > 0)
    add(concat(count_text(steps), " steps"));
  if (const int64_t tokens = count_in(settings, "tokens"); tokens > 0)
    add(concat(quantity_text(static_cast<double>(tokens)), " tokens"));
  if (const Json& seconds = setting(settings, "seconds");
      seconds.is_number() && seconds.get<double>() > 0)
    add(duration_text(seconds.get<double>()));
  return text;
}

std::string asked_text(const RunMark& mark) {
  const Json& settings = mark.settings;
  const Json& model = setting(settings, "model");
  const std::string data = concat(" on ", data_text(settings), budget_text(settings), ".");
  if (!model.is_object())
    return concat("Train ", text_in(settings, "model"), " further, with ", method_text(settings),
                  data);
  const std::string kind = text_in(model, "kind");
  return concat("Train ",
                kind.empty()            ? "a model"
                : kind.starts_with("e") ? "an "
                                        : "a ",
                kind, " of ", count_in(model, "layers"),
                count_in(model, "layers") == 1 ? " layer" : " layers", " and width ",
                count_in(model, "width"), ", with ", method_text(settings), ",", data);
}

std::string done_text(const RunHistory& history) {
  const auto step = static_cast<int64_t>(history.step);
  return concat(count_text(step), step == 1 ? " step" : " steps", ", ",
                quantity_text(history.tokens), " tokens and ", duration_text(history.seconds));
}

size_t best_of(const LoggedCurve& validation) {
  return static_cast<size_t>(std::ranges::min_element(validation.values) -
                             validation.values.begin());
}

std::string step_text(double step) { return count_text(static_cast<int64_t>(step)); }

std::string validation_text(const LoggedCurve& validation) {
  const double last = validation.values.back();
  std::string text =
      concat("The held-out loss is ", rounded(last), " (perplexity ", rounded(std::exp(last)), ")");
  if (validation.values.size() > 1)
    text += concat(", from ", rounded(validation.values.front()), " at step ",
                   step_text(validation.steps.front()));
  text += ".";
  const size_t best = best_of(validation);
  if (last > kWorse * validation.values[best])
    text += concat(" It was lowest, ", rounded(validation.values[best]), ", at step ",
                   step_text(validation.steps[best]),
                   " and rose since: the model learns its data by heart, or the steps are too "
                   "large. best is that checkpoint.");
  return text;
}

std::string answer_text(const RunHistory& history) {
  if (history.step == 0) return "No step was logged yet.";
  std::string text;
  if (history.progress && *history.progress < 1)
    text = concat("Not finished: ", plot::Cell::of(100 * *history.progress, {}, 0).text,
                  " % of the budget is spent. ");
  if (!history.last_validation_was_finite)
    text += "The last held-out loss was no number: the training diverged. ";
  if (!history.validation.empty())
    text += validation_text(history.validation);
  else if (!history.loss.empty())
    text += concat("The training loss is ", rounded(history.loss.values.back()), ", from ",
                   rounded(history.loss.values.front()), " at step ",
                   step_text(history.loss.steps.front()), "; nothing was held out.");
  return concat(text, " That took ", done_text(history), ".");
}

plot::Series series_of(const std::string& name, const LoggedCurve& curve) {
  LoggedCurve thin = thinned(curve, kMostPoints);
  // One step is a point, and no line.
  const bool point = thin.steps.size() == 1;
  return {.name = name, .x = std::move(thin.steps), .y = std::move(thin.values), .markers = point};
}

plot::LineChart chart_of(const std::string& title, const std::string& unit, bool log = false) {
  return {.title = title, .x = {.label = "step"}, .y = {.label = unit, .log = log}};
}

plot::LineChart loss_chart(const RunHistory& history) {
  auto chart = chart_of("Loss", "nats a token");
  chart.series.push_back(series_of("training", history.loss));
  if (history.validation.empty()) return chart;
  plot::Series validation = series_of("held out", history.validation);
  constexpr size_t kFewMarkers = 40;
  validation.markers = validation.x.size() <= kFewMarkers;
  chart.series.push_back(std::move(validation));
  const size_t best = best_of(history.validation);
  if (best + 1 < history.validation.values.size())
    chart.guides.push_back({.at = history.validation.steps[best], .label = "best"});
  return chart;
}

// A line a layer; of many layers some, from the first to the last.
plot::LineChart layers_chart(const std::string& title, const std::string& unit,
                             const std::vector<std::pair<std::string, LoggedCurve>>& layers) {
  constexpr size_t kMostLayers = 6, kFewMarkers = 20;
  auto chart = chart_of(title, unit);
  const size_t shown = std::min(layers.size(), kMostLayers);
  for (size_t i = 0; i < shown; ++i) {
    const size_t at = shown == 1 ? 0 : i * (layers.size() - 1) / (shown - 1);
    plot::Series series = series_of("layer " + layers[at].first, layers[at].second);
    // A run that was watched once has a point and no line.
    series.markers = series.x.size() <= kFewMarkers;
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_panel(plot::Figure& figure, plot::LineChart chart, const LoggedCurve& curve) {
  if (curve.empty()) return;
  chart.series.push_back(series_of("", curve));
  figure.panels.emplace_back(std::move(chart));
}

plot::Figure figure_of(const RunHistory& history) {
  plot::Figure figure{.columns = 2};
  figure.panels.emplace_back(loss_chart(history));
  add_panel(figure, chart_of("Learning rate", "rate"), history.learning_rate);
  add_panel(figure, chart_of("Norm of the gradients", "norm before clipping", true),
            history.gradient_norm);
  if (!history.temperature.empty())
    figure.panels.emplace_back(
        layers_chart("Temperature, median of the heads", "1 / a_q", history.temperature));
  if (!history.entropy.empty())
    figure.panels.emplace_back(
        layers_chart("Entropy of attention, median of the heads", "nats", history.entropy));
  return figure;
}

plot::Table validation_table(const LoggedCurve& validation) {
  constexpr size_t kMostRows = 12;
  plot::Table table{.caption = "Held-out loss; the lowest in bold",
                    .header = {"step", "loss", "perplexity"}};
  const size_t best = best_of(validation), count = validation.steps.size();
  for (size_t i = 0; i < count; ++i) {
    // The best one and the last ones.
    if (i != best && i + kMostRows < count) continue;
    const double loss = validation.values[i];
    std::vector<plot::Cell> row{{.text = step_text(validation.steps[i]), .number = true},
                                plot::Cell::of(loss, {}, 4),
                                plot::Cell::of(std::exp(loss), {}, 2)};
    if (i == best)
      for (auto& cell : row) cell = cell.emphasised();
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::string> next_steps(const RunHistory& history, const fs::path& folder) {
  const std::string run = quoted(folder.string());
  std::vector<std::string> items;
  if (!history.progress || *history.progress < 1)
    items.push_back(concat("go on: `tempera ", history.mark.verb, " --config ",
                           quoted((folder / "run.toml").string()), "`"));
  items.push_back(
      concat("measure it on other text, or on a task: `tempera eval ", run, " --text FILE`"));
  items.push_back(concat("see where its heads look: `tempera lens ", run, " --text FILE`"));
  items.push_back(
      concat("set runs side by side: `tempera report ", run, " OTHER --out page.html`"));
  return items;
}

std::vector<std::string> not_shown(const RunHistory& history) {
  std::vector<std::string> items = {
      "whether another method, learning rate or seed does better: one run has no spread, and "
      "`tempera compare` trains several on the same data"};
  if (const int64_t rows = count_in(history.mark.settings, "eval-rows");
      rows > 0 && !history.validation.empty())
    items.push_back(concat("the loss on all held-out data: a validation reads at most ",
                           count_text(rows), " rows"));
  items.push_back("how the model does on other text and on tasks");
  return items;
}

std::string title_of(const RunMark& mark) {
  const std::string method = method_text(mark.settings);
  if (mark.verb == "finetune") return concat("A fine-tuning with ", method);
  return mark.verb == "calibrate" ? "A calibration that learns"
                                  : concat("A training with ", method);
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

plot::Figure figure_of_run(const fs::path& folder) { return figure_of(read_history(folder)); }

plot::HtmlReport report_of_run(const fs::path& folder) {
  const RunHistory history = read_history(folder);
  plot::HtmlReport report(title_of(history.mark));
  report.summary({.asked = asked_text(history.mark),
                  .answer = answer_text(history),
                  .not_shown = not_shown(history)});
  plot::Figure figure = figure_of(history);
  add_panel(figure, chart_of("Speed", "tokens a second"), history.speed);
  report.figure(figure, concat("By step. Of more than ", kMostPoints,
                               " logged steps, neighbours are drawn as their mean."));
  if (!history.validation.empty()) report.table(validation_table(history.validation));
  report.heading("What to do next");
  report.list(next_steps(history, folder));
  report.how_made(concat("Build ", history.mark.build.empty() ? "not noted" : history.mark.build),
                  concat("tempera ", history.mark.verb), history.mark.settings.dump(2));
  return report;
}

void ReportWriter::write_sometimes() {
  if (kShareOfTime * (clock_seconds() - ended_) >= took_) write();
}

void ReportWriter::write() {
  const double begin = clock_seconds();
  try {
    report_of_run(folder_).save(folder_ / "report.html");
  } catch (const std::exception& error) {
    say_(concat("the report of the run was not written: ", error.what()));
  }
  ended_ = clock_seconds();
  took_ = ended_ - begin;
}

}  // namespace tempera::train
