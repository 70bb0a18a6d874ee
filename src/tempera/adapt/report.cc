#include "tempera/adapt/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/adapt/answers.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/eval/grid.h"

namespace tempera::adapt {
namespace {

using Json = nlohmann::ordered_json;

// A perplexity that grew by less, or over fewer tokens, is chance.
constexpr double kWorse = 1.005;
constexpr int64_t kFewTokens = 500;

std::string seen_text(const eval::PositionBucket& bucket) {
  return concat(bucket.first, "-", bucket.last);
}

// The bucket of another measurement with the same begin; null where it has none.
const eval::PositionBucket* bucket_like(const eval::TextScores& scores, int64_t first) {
  for (const auto& other : scores.by_position)
    if (other.first == first) return &other;
  return nullptr;
}

const Measure& first_of(const Measures& measures) { return measures.front().second; }

int64_t longest(const Measures& measures) { return first_of(measures).perplexity.rbegin()->first; }

bool has_passkey(const Measures& measures) { return first_of(measures).passkey.has_value(); }

constexpr int kColumn = 22;

// One row of numbers, a column for each model that was measured.
class Columns {
 public:
  Columns(const Measures& measures, std::ostringstream& text) : measures_(measures), text_(text) {}

  void header(const std::string& what) {
    text_ << std::left << std::setw(24) << what << std::right;
    for (const auto& [name, unused] : measures_) text_ << std::setw(kColumn) << name;
    text_ << "\n";
  }
  void row(const std::string& name, int decimals,
           const std::function<std::optional<double>(const Measure&)>& value) {
    text_ << "  " << std::left << std::setw(22) << name << std::right;
    for (const auto& [unused, measured] : measures_) {
      const std::optional<double> number = value(measured);
      text_ << std::setw(kColumn) << (number ? fixed(*number, decimals) : "");
    }
    text_ << "\n";
  }
  // With its interval.
  void row(const std::string& name, int decimals,
           const std::function<std::optional<eval::Estimate>(const Measure&)>& value) {
    text_ << "  " << std::left << std::setw(22) << name << std::right;
    for (const auto& [unused, measured] : measures_) {
      const auto estimate = value(measured);
      text_ << std::setw(kColumn) << (estimate ? interval_text(*estimate, decimals) : "");
    }
    text_ << "\n";
  }

 private:
  const Measures& measures_;
  std::ostringstream& text_;
};

void put_perplexity(const Measures& measures, Columns& columns) {
  columns.header("perplexity at length");
  for (const auto& [length, unused] : first_of(measures).perplexity)
    columns.row(std::to_string(length), 2,
                [key = length](const Measure& measured) -> std::optional<double> {
                  return measured.perplexity.at(key).perplexity;
                });
  const int64_t most = longest(measures);
  columns.header(concat("by tokens seen, ", most));
  for (const auto& bucket : first_of(measures).perplexity.at(most).by_position)
    columns.row(seen_text(bucket), 2, [&](const Measure& measured) -> std::optional<double> {
      const auto* same = bucket_like(measured.perplexity.at(most), bucket.first);
      return same ? std::optional(std::exp(same->loss)) : std::nullopt;
    });
}

void put_changes(const Measures& measures, Columns& columns) {
  columns.header("perplexity over before");
  for (const auto& [length, before] : first_of(measures).perplexity)
    columns.row(std::to_string(length), 3,
                [&, key = length](const Measure& measured) -> std::optional<eval::Estimate> {
                  return &measured == &first_of(measures)
                             ? std::nullopt
                             : perplexity_ratio(before, measured.perplexity.at(key));
                });
}

void put_passkey(const Measures& measures, Columns& columns) {
  columns.header("passkey, % right");
  const auto& lengths = first_of(measures).passkey->lengths;
  for (size_t i = 0; i < lengths.size(); ++i)
    columns.row(std::to_string(lengths[i]), 0,
                [i](const Measure& measured) -> std::optional<eval::Estimate> {
                  return in_percent(measured.passkey->at_length(i));
                });
}

// A side of the temperatures: its name, and where it is.
using Side = std::pair<const char*, std::vector<double> LayerTemperatures::*>;
constexpr Side kQueries{"q", &LayerTemperatures::q}, kKeys{"k", &LayerTemperatures::k},
    kValues{"v", &LayerTemperatures::v};

std::vector<double> all_heads(const std::vector<LayerTemperatures>& layers, const Side& side) {
  std::vector<double> values;
  for (const auto& layer : layers) {
    const auto& heads = layer.*side.second;
    values.insert(values.end(), heads.begin(), heads.end());
  }
  return values;
}

void put_temperatures(const std::vector<LayerTemperatures>& layers, std::ostringstream& text) {
  for (const Side& side : {kQueries, kKeys, kValues}) {
    const auto values = all_heads(layers, side);
    if (values.empty()) continue;
    const auto [low, high] = std::ranges::minmax(values);
    double sum = 0;
    for (const double value : values) sum += value;
    text << std::left << std::setw(24) << concat("temperature a_", side.first) << "mean "
         << fixed(sum / static_cast<double>(values.size()), 3) << ", " << fixed(low, 3) << " to "
         << fixed(high, 3) << "\n";
  }
}

std::string summary(const CalibrationResult& result) {
  const auto tokens = static_cast<double>(result.tokens);
  return concat(result.learned, ": ", result.numbers, " numbers learned of ",
                quantity_text(static_cast<double>(result.parameters)), ", on ",
                quantity_text(tokens), " tokens at length ", result.length, " in ",
                duration_text(result.seconds), ", ",
                quantity_text(result.seconds > 0 ? tokens / result.seconds : 0), " tokens/s");
}

plot::LineChart position_chart(const Measures& measures) {
  const int64_t most = longest(measures);
  plot::LineChart chart{.title = concat("Perplexity by tokens seen, windows of ", most),
                        .x = {.label = "tokens seen", .log = true},
                        .y = {.label = "perplexity", .log = true}};
  for (const auto& [name, measured] : measures) {
    plot::Series series{.name = name, .markers = true};
    for (const auto& bucket : measured.perplexity.at(most).by_position) {
      series.x.push_back(std::sqrt(static_cast<double>(bucket.first * bucket.last)));
      series.y.push_back(std::exp(bucket.loss));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::LineChart length_chart(const Measures& measures) {
  plot::LineChart chart{.title = "Perplexity by length of the window",
                        .x = {.label = "tokens of a window", .log = true},
                        .y = {.label = "perplexity", .log = true}};
  for (const auto& [name, measured] : measures) {
    plot::Series series{.name = name, .markers = true};
    for (const auto& [length, scores] : measured.perplexity) {
      series.x.push_back(static_cast<double>(length));
      series.y.push_back(scores.perplexity);
    }
    chart.x.ticks = series.x;
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_temperature_maps(const std::vector<LayerTemperatures>& layers, plot::Figure& figure) {
  for (const Side& side : {kQueries, kValues}) {
    const auto values = all_heads(layers, side);
    if (values.empty()) continue;
    double far = 0;
    for (const double value : values) far = std::max(far, std::abs(value - 1));
    plot::HeatMap map{.title = concat("Learned temperature a_", side.first),
                      .x_label = "head",
                      .y_label = "layer",
                      .rows = layers.size(),
                      .columns = values.size() / layers.size(),
                      .values = values,
                      .min = 1 - far,
                      .max = 1 + far,
                      .scale = plot::ColorScale::kDiverging,
                      .scale_label = "above 1: sharper"};
    figure.panels.emplace_back(std::move(map));
  }
}

std::string tables(const CalibrationResult& result) {
  std::ostringstream text;
  Columns columns(result.measures, text);
  put_perplexity(result.measures, columns);
  put_changes(result.measures, columns);
  if (has_passkey(result.measures)) put_passkey(result.measures, columns);
  put_temperatures(result.temperatures, text);
  return text.str();
}

// A layer has none of a side, or as many as heads.
Json numbers_of(const std::vector<double>& heads) { return heads.empty() ? Json() : Json(heads); }
std::vector<double> heads_of(const Json& json) {
  return json.is_null() ? std::vector<double>() : json.get<std::vector<double>>();
}

// A report compares all of them with the first, at the same lengths.
void check_measures(const Measures& measures) {
  TEMPERA_CHECK(measures.size() >= 2, measures.size(),
                " measures found; those before and after expected");
  const Measure& before = first_of(measures);
  TEMPERA_CHECK(!before.perplexity.empty(), "no length was measured");
  for (const auto& [name, measured] : measures) {
    TEMPERA_CHECK(measured.perplexity.size() == before.perplexity.size() &&
                      measured.passkey.has_value() == before.passkey.has_value(),
                  name, " was not measured as ", measures.front().first, " was");
    for (const auto& [length, unused] : before.perplexity)
      TEMPERA_CHECK(measured.perplexity.contains(length), name, " was not measured at ", length);
    if (!measured.passkey) continue;
    const eval::Grid& grid = *measured.passkey;
    TEMPERA_CHECK(
        !grid.lengths.empty() && grid.lengths == before.passkey->lengths &&
            grid.cells.size() == grid.lengths.size() * std::max<size_t>(1, grid.depths.size()),
        name, " has other passkeys than ", measures.front().first);
  }
}

// Those whose intervals leave out that they are as they were.
void add_worse_lengths(const Measure& before, const Measure& after,
                       std::vector<std::string>& lines) {
  for (const auto& [length, scores] : before.perplexity) {
    const auto& now = after.perplexity.at(length);
    const auto ratio = perplexity_ratio(scores, now);
    if (ratio && ratio->low > 1)
      lines.push_back(concat("windows of ", length, " tokens: the perplexity grew from ",
                             fixed(scores.perplexity, 2), " to ", fixed(now.perplexity, 2), ", ",
                             interval_text(*ratio, 3), " times what it was"));
  }
  if (!before.passkey || !after.passkey) return;
  for (size_t i = 0; i < before.passkey->lengths.size(); ++i) {
    const auto was = before.passkey->at_length(i), now = after.passkey->at_length(i);
    if (now.high < was.low)
      lines.push_back(concat("passkeys of ", before.passkey->lengths[i],
                             " tokens: ", interval_text(in_percent(now), 0), " % found, before ",
                             interval_text(in_percent(was), 0), " %"));
  }
}

}  // namespace

std::vector<std::string> worse_places(const Measure& before, const Measure& after) {
  std::vector<std::string> lines;
  for (const auto& [length, scores] : before.perplexity)
    for (const auto& bucket : scores.by_position) {
      const auto* same = bucket_like(after.perplexity.at(length), bucket.first);
      if (!same || bucket.tokens < kFewTokens ||
          std::exp(same->loss) <= std::exp(bucket.loss) * kWorse)
        continue;
      lines.push_back(concat(
          "windows of ", length, ", ", seen_text(bucket), " tokens seen: the perplexity grew from ",
          fixed(std::exp(bucket.loss), 2), " to ", fixed(std::exp(same->loss), 2)));
    }
  add_worse_lengths(before, after, lines);
  return lines;
}

Json to_json(const CalibrationResult& result) {
  Json measures = Json::object(), temperatures = Json::array(), answers = Json::object();
  for (const auto& [question, answer] : owner_answers(result)) answers[question] = answer;
  for (const auto& [name, measured] : result.measures) measures[name] = to_json(measured);
  for (const auto& layer : result.temperatures)
    temperatures.push_back({{"layer", temperatures.size()},
                            {"q", numbers_of(layer.q)},
                            {"k", numbers_of(layer.k)},
                            {"v", numbers_of(layer.v)}});
  return {{"model", result.model},
          {"name", result.name},
          {"out", result.out},
          {"learned", result.learned},
          {"folds", result.folds},
          {"numbers", result.numbers},
          {"parameters", result.parameters},
          {"context", result.context},
          {"length", result.length},
          {"rope", result.rope},
          {"windows", result.windows},
          {"tokens", result.tokens},
          {"seconds", result.seconds},
          {"measures", std::move(measures)},
          {"temperatures", std::move(temperatures)},
          {"answers", std::move(answers)},
          {"warnings", result.warnings}};
}

CalibrationResult calibration_of(const Json& json, const std::string& where) {
  try {
    CalibrationResult result{.model = json.at("model"),
                             .name = json.at("name"),
                             .out = json.at("out"),
                             .learned = json.at("learned"),
                             .folds = json.value("folds", false),
                             .numbers = json.at("numbers"),
                             .parameters = json.at("parameters"),
                             .context = json.at("context"),
                             .length = json.at("length"),
                             .rope = json.at("rope"),
                             .windows = json.at("windows"),
                             .tokens = json.at("tokens"),
                             .seconds = json.at("seconds"),
                             .measures = {},
                             .temperatures = {},
                             .warnings = json.at("warnings")};
    for (const auto& [name, measured] : json.at("measures").items())
      result.measures.emplace_back(name, measure_of(measured));
    for (const Json& layer : json.at("temperatures"))
      result.temperatures.push_back({.q = heads_of(layer.at("q")),
                                     .k = heads_of(layer.at("k")),
                                     .v = heads_of(layer.at("v"))});
    check_measures(result.measures);
    return result;
  } catch (const std::exception& error) {
    throw Error(concat(where, " is not what `tempera calibrate` writes: ", error.what()));
  }
}

std::string to_text(const CalibrationResult& result) {
  std::string text = concat(summary(result), "\n", tables(result));
  for (const auto& [question, answer] : owner_answers(result))
    text += concat(question, "\n  ", answer, "\n");
  for (const auto& warning : result.warnings) text += concat("warning: ", warning, "\n");
  return text;
}

plot::Figure to_figure(const CalibrationResult& result) {
  plot::Figure figure{.title = "Calibration of " + result.name, .columns = 2};
  figure.panels.emplace_back(position_chart(result.measures));
  figure.panels.emplace_back(length_chart(result.measures));
  if (has_passkey(result.measures))
    for (size_t i = 0; i < 2; ++i) {  // before and after
      const auto& [name, measured] = result.measures.at(i);
      figure.panels.emplace_back(
          eval::to_chart(*measured.passkey, concat("Passkey found, ", name)));
    }
  add_temperature_maps(result.temperatures, figure);
  return figure;
}

plot::HtmlReport to_html(const CalibrationResult& result) {
  plot::HtmlReport page("Calibration of " + result.name);
  const auto answers = owner_answers(result);
  page.summary(
      {.asked = concat("What do temperatures, learned with all other weights as they were, "
                       "make of ",
                       result.name, "? Learned: ", summary(result), "."),
       .answer = has_passkey(result.measures) ? concat(answers[0].second, " ", answers[1].second)
                                              : answers[1].second,
       .not_shown = {"other text: a gain on text like the calibration's says little about "
                     "it; measure there too (`tempera eval`)",
                     "the spread over texts and seeds: this is one text and one "
                     "calibration",
                     "that the temperatures did it, where no control was measured: what a "
                     "control reaches by itself, the rest did not do"}});
  for (const auto& [question, answer] : answers) {
    page.heading(question);
    page.paragraph(answer);
  }
  page.heading("All numbers");
  page.code(tables(result));
  page.figure(to_figure(result),
              "The same held-out text and the same passkeys for every column of the table.");
  if (!result.warnings.empty()) {
    page.heading("Where it got worse, and what to mind");
    page.list(result.warnings);
  }
  return page;
}

void save(const CalibrationResult& result, const std::filesystem::path& folder) {
  write_file(folder / "calibration.json", to_json(result).dump(2) + "\n");
  const auto figure = to_figure(result);
  plot::save(figure, folder / "calibration.svg");
  plot::save(figure, folder / "calibration.png");
  to_html(result).save(folder / "report.html");
}

}  // namespace tempera::adapt
