#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/eval/ruler.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

std::string short_name(const std::string& task) { return task.substr(task.find('-') + 1); }

std::string percent(const Estimate& estimate) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << 100 * estimate.value << " (" << std::setprecision(0)
       << 100 * estimate.low << "-" << 100 * estimate.high << ")";
  return text.str();
}

Json estimated(const Estimate& estimate) {
  return {{"score", estimate.value},
          {"stderr", estimate.standard_error},
          {"low", estimate.low},
          {"high", estimate.high}};
}

void check(const RulerOptions& options) {
  if (options.lengths.empty() || options.cases < 1)
    throw UsageError(concat("ruler: ", options.lengths.size(), " lengths and ", options.cases,
                            " cases given; at least one of each is needed"));
  auto sorted = options.lengths;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw UsageError(concat("ruler: the length ", *twice, " given twice"));
}

RulerCase make_case(const RulerTask& task, const RulerSource& source, int64_t length,
                    data::RandomStream& random) {
  try {
    return task.make(source, length, random);
  } catch (const UsageError& error) {
    throw UsageError(concat(task.name, ": ", length, " tokens given, of which ", task.new_tokens,
                            " are for the answer: ", error.what()));
  }
}

std::string text_of_prompt(const text::Tokenizer& tokenizer, const RulerCase& one) {
  std::string text;
  tokenizer.decode(one.prompt, text);
  return text;
}

}  // namespace

int64_t ruler_cases(std::string_view name, const RulerOptions& options) {
  return options.cases *
         static_cast<int64_t>(options.lengths.size() * find_ruler_tasks(name).size());
}

Estimate RulerScores::at_length(size_t length) const {
  double score = 0;
  int64_t cases = 0;
  for (size_t task = 0; task < tasks(); ++task) {
    score += cell(task, length).score;
    cases += cell(task, length).cases;
  }
  return binomial(score / static_cast<double>(cases), cases);
}

RulerScores score_ruler(std::string_view name, const text::Tokenizer& tokenizer,
                        const RulerOptions& options, const RulerWriter& write,
                        const std::function<void(int64_t cases)>& report) {
  check(options);
  const auto tasks = find_ruler_tasks(name);
  TEMPERA_CHECK(!tasks.empty(), "no task '", name, "'", did_you_mean(name, ruler_task_names()));
  const RulerSource source(options.hay, tokenizer);
  RulerScores scores{.name = std::string(name), .lengths = options.lengths, .cells = {}};
  int64_t done = 0;
  for (const auto& task : tasks)
    for (const int64_t length : options.lengths) {
      const uint64_t seed = data::derive_seed(static_cast<uint64_t>(options.seed), task.name);
      std::vector<RulerCase> cases;
      for (int64_t i = 0; i < options.cases; ++i) {
        data::RandomStream random(seed, static_cast<uint64_t>(length), static_cast<uint32_t>(i));
        cases.push_back(make_case(task, source, length, random));
      }
      const auto answers =
          write(cases, task.new_tokens, [&](size_t index, std::string_view so_far) {
            return ruler_recall(so_far, cases.at(index).references) == 1;
          });
      RulerCell cell{.task = task.name,
                     .length = length,
                     .new_tokens = task.new_tokens,
                     .cases = options.cases};
      for (size_t i = 0; i < cases.size(); ++i) {
        const double score = ruler_recall(answers.at(i), cases[i].references);
        cell.score += score;
        if (options.samples)
          cell.samples.push_back(
              {text_of_prompt(tokenizer, cases[i]), answers[i], cases[i].references, score});
      }
      scores.cells.push_back(std::move(cell));
      done += options.cases;
      if (report) report(done);
    }
  return scores;
}

Json to_json(const RulerScores& scores) {
  Json tasks = Json::array(), average = Json::array();
  for (const auto& cell : scores.cells) {
    Json entry{{"task", cell.task},
               {"length", cell.length},
               {"new_tokens", cell.new_tokens},
               {"cases", cell.cases}};
    entry.update(estimated(cell.mean()));
    for (const auto& sample : cell.samples)
      entry["samples"].push_back({{"prompt", sample.prompt},
                                  {"answer", sample.answer},
                                  {"references", sample.references},
                                  {"score", sample.score}});
    tasks.push_back(std::move(entry));
  }
  for (size_t l = 0; l < scores.lengths.size(); ++l) {
    Json entry{{"length", scores.lengths[l]}};
    entry.update(estimated(scores.at_length(l)));
    average.push_back(std::move(entry));
  }
  return {{"task", scores.name}, {"cells", std::move(tasks)}, {"average", std::move(average)}};
}

RulerScores ruler_scores_of(const Json& json) {
  RulerScores scores{.name = json.at("task"), .lengths = {}, .cells = {}};
  for (const Json& entry : json.at("average")) scores.lengths.push_back(entry.at("length"));
  for (const Json& entry : json.at("cells")) {
    RulerCell cell{.task = entry.at("task"),
                   .length = entry.at("length"),
                   .new_tokens = entry.at("new_tokens"),
                   .cases = entry.at("cases")};
    cell.score = entry.at("score").get<double>() * static_cast<double>(cell.cases);
    scores.cells.push_back(std::move(cell));
  }
  const size_t lengths = scores.lengths.size(), cells = scores.cells.size();
  TEMPERA_CHECK(lengths > 0 && cells > 0 && cells % lengths == 0, scores.name, ": ", cells,
                " cells found for ", lengths, " lengths");
  return scores;
}

std::string to_text(const RulerScores& scores) {
  constexpr int kName = 18, kColumn = 18;
  std::ostringstream text;
  text << std::left << std::setw(kName) << "% of the answers" << std::right;
  for (const int64_t length : scores.lengths) text << std::setw(kColumn) << length;
  text << "\n";
  const auto row = [&](const std::string& name, const std::function<Estimate(size_t)>& value) {
    text << std::left << std::setw(kName) << name << std::right;
    for (size_t l = 0; l < scores.lengths.size(); ++l)
      text << std::setw(kColumn) << percent(value(l));
    text << "\n";
  };
  for (size_t task = 0; task < scores.tasks(); ++task)
    row(short_name(scores.cell(task, 0).task),
        [&](size_t l) { return scores.cell(task, l).mean(); });
  if (scores.tasks() > 1) row("all", [&](size_t l) { return scores.at_length(l); });
  text << "in brackets: 95 % interval; " << scores.cells.front().cases
       << " cases of each task and length\n";
  return text.str();
}

plot::Figure to_figure(const RulerScores& scores) {
  plot::HeatMap map{.title = "Share of the answers found",
                    .x_label = "tokens of text",
                    .rows = scores.tasks(),
                    .columns = scores.lengths.size(),
                    .min = 0,
                    .max = 100,
                    .scale_label = "%",
                    .decimals = 0,
                    .show_values = true};
  for (const int64_t length : scores.lengths) map.column_labels.push_back(std::to_string(length));
  for (size_t task = 0; task < scores.tasks(); ++task)
    map.row_labels.push_back(short_name(scores.cell(task, 0).task));
  for (const auto& cell : scores.cells) map.values.push_back(100 * cell.mean().value);
  plot::Figure figure{.title = scores.name};
  figure.panels.emplace_back(std::move(map));
  return figure;
}

}  // namespace tempera::eval
