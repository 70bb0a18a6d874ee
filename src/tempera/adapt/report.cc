#include "tempera/adapt/report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/eval/grid.h"

namespace tempera::adapt {
namespace {

using Json = nlohmann::ordered_json;

// A perplexity that grew by less, or over fewer tokens, is chance.
constexpr double kWorse = 1.005;
constexpr int64_t kFewTokens = 500;

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

std::string seen_text(const Json& bucket) {
  return concat(bucket.at("first").get<int64_t>(), "-", bucket.at("last").get<int64_t>());
}

// The bucket of another measurement with the same begin; null where it has none.
const Json* bucket_like(const Json& scores, const Json& bucket) {
  for (const auto& other : scores.at("by_position"))
    if (other.at("first") == bucket.at("first")) return &other;
  return nullptr;
}

std::string longest(const Json& measures) {
  return std::prev(measures.begin().value().at("perplexity").end()).key();
}

eval::Grid grid_of(const Json& passkey) {
  eval::Grid grid{.task = "passkey", .lengths = {}, .depths = {}, .cells = {}};
  for (const auto& row : passkey.at("lengths")) grid.lengths.push_back(row.at("length"));
  for (const auto& cell : passkey.at("cells")) {
    const double depth = cell.at("depth");
    if (std::ranges::find(grid.depths, depth) == grid.depths.end()) grid.depths.push_back(depth);
    grid.cells.push_back({cell.at("length"), depth, cell.at("hits"), cell.at("cases")});
  }
  return grid;
}

bool has_passkey(const Json& result) {
  return result.at("measures").begin().value().at("passkey").is_object();
}

// One row of numbers, a column for each model that was measured.
class Columns {
 public:
  Columns(const Json& measures, std::ostringstream& text) : measures_(measures), text_(text) {}

  void header(const std::string& what) {
    text_ << std::left << std::setw(24) << what << std::right;
    for (const auto& [name, unused] : measures_.items()) text_ << std::setw(14) << name;
    text_ << "\n";
  }
  template <class Value>
  void row(const std::string& name, int decimals, const Value& value) {
    text_ << "  " << std::left << std::setw(22) << name << std::right;
    for (const auto& [unused, measured] : measures_.items()) {
      const std::optional<double> number = value(measured);
      text_ << std::setw(14) << (number ? fixed(*number, decimals) : "");
    }
    text_ << "\n";
  }

 private:
  const Json& measures_;
  std::ostringstream& text_;
};

void put_perplexity(const Json& measures, Columns& columns) {
  columns.header("perplexity at length");
  for (const auto& [length, unused] : measures.begin().value().at("perplexity").items())
    columns.row(length, 2, [&, key = length](const Json& measured) -> std::optional<double> {
      return measured.at("perplexity").at(key).at("perplexity").get<double>();
    });
  const std::string most = longest(measures);
  columns.header("by tokens seen, " + most);
  for (const auto& bucket : measures.begin().value().at("perplexity").at(most).at("by_position"))
    columns.row(seen_text(bucket), 2, [&](const Json& measured) -> std::optional<double> {
      const Json* same = bucket_like(measured.at("perplexity").at(most), bucket);
      return same ? std::optional(same->at("perplexity").get<double>()) : std::nullopt;
    });
}

void put_passkey(const Json& measures, Columns& columns) {
  columns.header("passkey, % right");
  const Json& rows = measures.begin().value().at("passkey").at("lengths");
  for (size_t i = 0; i < rows.size(); ++i)
    columns.row(std::to_string(rows[i].at("length").get<int64_t>()), 0,
                [i](const Json& measured) -> std::optional<double> {
                  return 100 *
                         measured.at("passkey").at("lengths").at(i).at("accuracy").get<double>();
                });
}

std::vector<double> all_heads(const Json& layers, const char* side) {
  std::vector<double> values;
  for (const auto& layer : layers)
    if (layer.at(side).is_array())
      for (const auto& value : layer.at(side)) values.push_back(value);
  return values;
}

void put_temperatures(const Json& layers, std::ostringstream& text) {
  for (const char* side : {"q", "k", "v"}) {
    const auto values = all_heads(layers, side);
    if (values.empty()) continue;
    const auto [low, high] = std::ranges::minmax(values);
    double sum = 0;
    for (const double value : values) sum += value;
    text << std::left << std::setw(24) << concat("temperature a_", side) << "mean "
         << fixed(sum / static_cast<double>(values.size()), 3) << ", " << fixed(low, 3) << " to "
         << fixed(high, 3) << "\n";
  }
}

std::string summary(const Json& result) {
  const double seconds = result.at("seconds"), tokens = result.at("tokens");
  return concat(result.at("learned").get<std::string>(), ": ", result.at("numbers").get<int64_t>(),
                " numbers learned of ", quantity_text(result.at("parameters").get<double>()),
                ", on ", quantity_text(tokens), " tokens at length ",
                result.at("length").get<int64_t>(), " in ", duration_text(seconds), ", ",
                quantity_text(seconds > 0 ? tokens / seconds : 0), " tokens/s");
}

plot::LineChart position_chart(const Json& measures) {
  const std::string most = longest(measures);
  plot::LineChart chart{.title = "Perplexity by tokens seen, windows of " + most,
                        .x = {.label = "tokens seen", .log = true},
                        .y = {.label = "perplexity", .log = true}};
  for (const auto& [name, measured] : measures.items()) {
    plot::Series series{.name = name, .markers = true};
    for (const auto& bucket : measured.at("perplexity").at(most).at("by_position")) {
      series.x.push_back(
          std::sqrt(bucket.at("first").get<double>() * bucket.at("last").get<double>()));
      series.y.push_back(bucket.at("perplexity"));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::LineChart length_chart(const Json& measures) {
  plot::LineChart chart{.title = "Perplexity by length of the window",
                        .x = {.label = "tokens of a window", .log = true},
                        .y = {.label = "perplexity", .log = true}};
  for (const auto& [name, measured] : measures.items()) {
    plot::Series series{.name = name, .markers = true};
    for (const auto& [length, scores] : measured.at("perplexity").items()) {
      series.x.push_back(std::stod(length));
      series.y.push_back(scores.at("perplexity"));
    }
    chart.x.ticks = series.x;
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_temperature_maps(const Json& layers, plot::Figure& figure) {
  for (const char* side : {"q", "v"}) {
    const auto values = all_heads(layers, side);
    if (values.empty()) continue;
    double far = 0;
    for (const double value : values) far = std::max(far, std::abs(value - 1));
    plot::HeatMap map{.title = concat("Learned temperature a_", side),
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

}  // namespace

std::vector<std::string> worse_places(const Json& before, const Json& after) {
  std::vector<std::string> lines;
  for (const auto& [length, scores] : before.at("perplexity").items())
    for (const auto& bucket : scores.at("by_position")) {
      const Json* same = bucket_like(after.at("perplexity").at(length), bucket);
      const double old_value = bucket.at("perplexity");
      if (!same || bucket.at("tokens").get<int64_t>() < kFewTokens ||
          same->at("perplexity").get<double>() <= old_value * kWorse)
        continue;
      lines.push_back(concat("windows of ", length, ", ", seen_text(bucket),
                             " tokens seen: the perplexity grew from ", fixed(old_value, 2), " to ",
                             fixed(same->at("perplexity"), 2)));
    }
  return lines;
}

namespace {

std::string tables(const Json& result) {
  std::ostringstream text;
  Columns columns(result.at("measures"), text);
  put_perplexity(result.at("measures"), columns);
  if (has_passkey(result)) put_passkey(result.at("measures"), columns);
  put_temperatures(result.at("temperatures"), text);
  return text.str();
}

}  // namespace

std::string to_text(const Json& result) {
  std::string text = concat(summary(result), "\n", tables(result));
  for (const auto& warning : result.at("warnings"))
    text += concat("warning: ", warning.get<std::string>(), "\n");
  return text;
}

plot::Figure to_figure(const Json& result) {
  const Json& measures = result.at("measures");
  plot::Figure figure{.title = concat("Calibration of ", result.at("name").get<std::string>()),
                      .columns = 2};
  figure.panels.emplace_back(position_chart(measures));
  figure.panels.emplace_back(length_chart(measures));
  if (has_passkey(result))
    for (const char* name : {"before", "after"})
      figure.panels.emplace_back(eval::to_chart(grid_of(measures.at(name).at("passkey")),
                                                concat("Passkey found, ", name)));
  add_temperature_maps(result.at("temperatures"), figure);
  return figure;
}

plot::HtmlReport to_html(const Json& result) {
  plot::HtmlReport page(concat("Calibration of ", result.at("name").get<std::string>()));
  page.paragraph(concat(summary(result), ". All other weights stayed as they were."));
  page.code(tables(result));
  page.figure(to_figure(result),
              "The same held-out text and the same passkeys for every column of the table.");
  if (!result.at("warnings").empty()) {
    page.heading("Where it got worse, and what to mind");
    std::vector<std::string> lines;
    for (const auto& warning : result.at("warnings")) lines.push_back(warning);
    page.list(lines);
  }
  page.heading("What this shows");
  page.paragraph(
      "One text, one calibration. What norm gains alone reach (--controls), the temperature did "
      "not "
      "do. A gain on text like the calibration's says little about other text; measure there too "
      "(tempera eval).");
  return page;
}

}  // namespace tempera::adapt
