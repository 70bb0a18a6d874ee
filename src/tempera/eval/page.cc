#include "tempera/eval/page.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/eval/choices.h"
#include "tempera/eval/examples.h"
#include "tempera/eval/grid.h"
#include "tempera/eval/report.h"
#include "tempera/eval/ruler.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;
using plot::Cell;

constexpr const char* kOtherTasks = "what the model does on other tasks, texts and lengths";

std::string rounded(double value, int decimals) { return Cell::of(value, {}, decimals).text; }

Cell count_cell(int64_t count) { return {.text = count_text(count), .number = true}; }

// "71.3 (68.0 to 74.5)"
std::string with_interval(double value, double low, double high, int decimals) {
  return concat(rounded(value, decimals), " (", rounded(low, decimals), " to ",
                rounded(high, decimals), ")");
}

std::string percent(const Estimate& share) {
  return with_interval(100 * share.value, 100 * share.low, 100 * share.high, 1);
}

Cell percent_cell(const Estimate& share) { return {.text = percent(share), .number = true}; }

std::string model_of(const Json& document) {
  return document.contains("model") ? document["model"].get<std::string>() : "the model";
}

// A built-in task of tokens, by size.
plot::HtmlReport page_of_sets(const Json& document) {
  const auto task = document.at("task").get<std::string>();
  const auto list = size_scores_of(document.at("sets"));
  TEMPERA_CHECK(!list.empty(), "no set was measured");
  plot::HtmlReport page("The task " + task);
  const auto &first = list.front(), &last = list.back();
  std::string answer = concat("It answers ", rounded(100 * first.scores.accuracy, 1),
                              " % rightly at size ", count_text(first.size));
  if (list.size() > 1)
    answer += concat(", and ", rounded(100 * last.scores.accuracy, 1), " % at size ",
                     count_text(last.size));
  page.summary({.asked = concat("How does ", model_of(document), " do on the built-in task ", task,
                                ", by the size of its questions?"),
                .answer = answer + ".",
                .not_shown = {"the spread over seeds: this is one model (`tempera compare` trains "
                              "several)",
                              kOtherTasks}});
  page.figure(to_figure(task, list), "Of held-out rows, by size.");
  plot::Table table{.caption = "Held-out rows by size",
                    .header = {"size", "rows", "right, %", "loss", "weight on the answer"}};
  for (const auto& [size, rows, scores] : list)
    table.rows.push_back({count_cell(size), count_cell(rows),
                          Cell::of(100 * scores.accuracy, {}, 1), Cell::of(scores.loss, {}, 4),
                          scores.answer_weight ? Cell::of(*scores.answer_weight, {}, 3)
                                               : Cell{.text = "", .number = true}});
  page.table(table);
  return page;
}

std::string text_name(const Json& document) {
  const auto found = document.find("text");
  if (found == document.end()) return "text";
  if (found->is_string()) return found->get<std::string>();
  std::string names;
  for (const Json& file : *found) {
    const auto path = file.get<std::string>();
    names += (names.empty() ? "" : ", ") + path.substr(path.rfind('/') + 1);
  }
  return names;
}

plot::HtmlReport page_of_text(const Json& document) {
  const TextScores scores = text_scores_of(document);
  plot::HtmlReport page("Perplexity of text");
  std::string answer = concat("The perplexity is ", rounded(scores.perplexity, 2));
  if (const auto found = document.find("perplexity_interval"); found != document.end())
    answer +=
        concat(" (95 % interval ", rounded(found->at(0), 2), " to ", rounded(found->at(1), 2), ")");
  answer += concat(" over ", count_text(scores.tokens), " tokens");
  if (const auto found = document.find("bits_per_byte"); found != document.end())
    answer += concat(", ", rounded(found->get<double>(), 3), " bits a byte");
  if (const auto found = document.find("window"); found != document.end())
    answer += concat(", in windows of ", count_text(found->get<int64_t>()), " tokens");
  page.summary(
      {.asked = concat("How well does ", model_of(document), " predict ", text_name(document), "?"),
       .answer = answer + ".",
       .not_shown = {"whether it understands or finds what it read: a low perplexity is not yet "
                     "retrieval (`tempera eval --task passkey`, `--task ruler`)",
                     "models with other tokens: compare these by bits a byte", kOtherTasks}});
  page.figure(to_figure("", scores),
              "A point is the mean over the tokens that had so many before them; fewer tokens "
              "stand behind the first and the last.");
  plot::Table table{.caption = "By the tokens that were seen before",
                    .header = {"tokens seen", "predicted", "loss", "perplexity"}};
  for (const auto& bucket : scores.by_position)
    table.rows.push_back({Cell::of(concat(bucket.first, "-", bucket.last)),
                          count_cell(bucket.tokens), Cell::of(bucket.loss, {}, 4),
                          Cell::of(std::exp(bucket.loss), {}, 2)});
  table.rows.push_back({Cell::of("all"), count_cell(scores.tokens), Cell::of(scores.loss, {}, 4),
                        Cell::of(scores.perplexity, {}, 2)});
  page.table(table);
  return page;
}

plot::HtmlReport page_of_grid(const Json& document) {
  const Grid grid = grid_of(document);
  const size_t depths = std::max<size_t>(grid.depths.size(), 1);
  TEMPERA_CHECK(!grid.lengths.empty() && grid.cells.size() == grid.lengths.size() * depths,
                grid.cells.size(), " cells found for ", grid.lengths.size(), " lengths and ",
                depths, " depths");
  plot::HtmlReport page("The task " + grid.task);
  const size_t last = grid.lengths.size() - 1;
  std::string answer = concat("At ", count_text(grid.lengths[last]), " tokens it is right in ",
                              percent(grid.at_length(last)), " %");
  if (last > 0)
    answer +=
        concat(", at ", count_text(grid.lengths[0]), " in ", percent(grid.at_length(0)), " %");
  page.summary(
      {.asked = concat("Does ", model_of(document), " find what is hidden in long text (",
                       grid.task, ")?"),
       .answer = answer + ". In brackets: the 95 % interval.",
       .not_shown = {"the use of what was found: the task asks for what stands in the text",
                     kOtherTasks}});
  page.figure(to_figure(grid), "Share of right answers, by the length of the text.");
  plot::Table table{.caption = "Right answers in % with their 95 % interval",
                    .header = {"tokens", "all depths"}};
  for (const double depth : grid.depths)
    table.header.push_back(concat("depth ", rounded(100 * depth, 0), " %"));
  for (size_t l = 0; l <= last; ++l) {
    std::vector<Cell> row{count_cell(grid.lengths[l]), percent_cell(grid.at_length(l))};
    for (size_t d = 0; d < grid.depths.size(); ++d)
      row.push_back(Cell::of(100 * grid.cell(l, d).accuracy(), {}, 0));
    table.rows.push_back(std::move(row));
  }
  page.table(table);
  return page;
}

plot::HtmlReport page_of_ruler(const Json& document) {
  const RulerScores scores = ruler_scores_of(document);
  plot::HtmlReport page("The tasks of " + scores.name);
  const size_t last = scores.lengths.size() - 1;
  page.summary(
      {.asked = concat("Does ", model_of(document), " answer questions about long text in its own ",
                       "words (", scores.name, ")?"),
       .answer = concat("At ", count_text(scores.lengths[last]), " tokens its answers name ",
                        percent(scores.at_length(last)),
                        " % of what they should, over all tasks. In brackets: the 95 % interval."),
       .not_shown = {"wordings of its own: ours differ from those of the RULER paper, so compare "
                     "with numbers of this program only",
                     kOtherTasks}});
  page.figure(to_figure(scores), "Share of the answers found, by task and length.");
  plot::Table table{.caption = "Answers found in % with their 95 % interval", .header = {"task"}};
  for (const int64_t length : scores.lengths)
    table.header.push_back(concat(count_text(length), " tokens"));
  for (size_t task = 0; task < scores.tasks(); ++task) {
    std::vector<Cell> row{Cell::of(scores.cell(task, 0).task)};
    for (size_t l = 0; l <= last; ++l) row.push_back(percent_cell(scores.cell(task, l).mean()));
    table.rows.push_back(std::move(row));
  }
  std::vector<Cell> all{Cell::of("all")};
  for (size_t l = 0; l <= last; ++l) all.push_back(percent_cell(scores.at_length(l)));
  if (scores.tasks() > 1) table.rows.push_back(std::move(all));
  page.table(table);
  return page;
}

plot::HtmlReport page_of_choices(const Json& document) {
  const ChoiceSummary summary = choice_summary_of(document);
  plot::HtmlReport page("The task " + summary.task);
  std::string answer;
  for (const auto& [name, estimate, higher] : summary.metrics)
    answer += concat(answer.empty() ? "" : "; ", name, " ",
                     higher ? percent(estimate) + " %"
                            : with_interval(estimate.value, estimate.low, estimate.high, 2));
  page.summary(
      {.asked = concat("How often does ", model_of(document), " prefer the right answer (",
                       summary.task, ", ", count_text(summary.count), " examples)?"),
       .answer = concat(answer, ". In brackets: the 95 % interval."),
       .not_shown = {"answers in the model's own words: it chooses between given ones",
                     "few-shot prompts: there are no examples before the question", kOtherTasks}});
  page.figure(to_figure(summary), "With 95 % intervals, by resampling the examples.");
  plot::Table table{.caption = "Metrics as lm-eval names them",
                    .header = {"metric", "value", "standard error", "95 % interval"}};
  for (const auto& [name, estimate, higher] : summary.metrics)
    table.rows.push_back(
        {Cell::of(name), Cell::of(estimate.value, {}, 4), Cell::of(estimate.standard_error, {}, 4),
         Cell{.text = concat(rounded(estimate.low, 4), " to ", rounded(estimate.high, 4)),
              .number = true}});
  page.table(table);
  return page;
}

// Classes, hidden tokens, translations.
plot::HtmlReport page_of_measures(const Json& document) {
  const auto task = document.at("task").get<std::string>();
  const auto measures = measures_of(document);
  TEMPERA_CHECK(!measures.empty(), "the document of the task '", task, "' has no metric");
  plot::HtmlReport page("Measured on " + task);
  std::string answer;
  for (const auto& [name, estimate] : measures)
    answer += concat(answer.empty() ? "" : "; ", name, " ",
                     estimate.low < estimate.high
                         ? with_interval(estimate.value, estimate.low, estimate.high, 2)
                         : rounded(estimate.value, 2));
  page.summary({.asked = concat("How well does ", model_of(document), " do on ", task, "?"),
                .answer = concat(answer, ", of 100. In brackets: the 95 % interval."),
                .not_shown = {kOtherTasks}});
  page.figure(measures_figure(task, measures), "With 95 % intervals where there are some.");
  plot::Table table{.caption = "Of 100", .header = {"metric", "value", "low", "high"}};
  for (const auto& [name, estimate] : measures)
    table.rows.push_back({Cell::of(name), Cell::of(estimate.value, {}, 2),
                          Cell::of(estimate.low, {}, 2), Cell::of(estimate.high, {}, 2)});
  page.table(table);
  return page;
}

plot::HtmlReport page_by_kind(const Json& document) {
  if (document.contains("sets")) return page_of_sets(document);
  if (document.contains("by_position")) return page_of_text(document);
  if (document.contains("cells") && document.contains("lengths")) return page_of_grid(document);
  if (document.contains("cells")) return page_of_ruler(document);
  if (document.contains("results")) return page_of_choices(document);
  return page_of_measures(document);
}

}  // namespace

plot::HtmlReport page_of(const Json& document) {
  TEMPERA_CHECK(document.is_object(), "an object expected");
  try {
    plot::HtmlReport page = page_by_kind(document);
    Json settings = Json::object();
    for (const auto& [name, value] : document.items())
      if (value.is_primitive() || name == "text") settings[name] = value;
    page.how_made("Tempera", concat("tempera eval ", model_of(document)), settings.dump(2));
    return page;
  } catch (const Json::exception& error) {
    throw Error(concat("this is not what `tempera eval` writes: ", error.what()));
  }
}

}  // namespace tempera::eval
