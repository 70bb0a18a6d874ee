#include "tempera/base/error.h"
#include "tempera/study/compare.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

// The parts of ssa one by one, then what might do as well without it.
const std::vector<std::string> kAblationMethods = {
    "softmax",     "ssa",           "ssa:pos=false", "ssa:tok=false",
    "ssa:v=false", "ssa:q=false",   "ssa:k=true",    "ssa:q=false:v=false:k=true",
    "ssa:f=mlp",   "ssa:f=feature", "ssa:g=expexp",  "ssa:g=linear",
    "yarn",        "focal",         "focal-learned", "ssa:f=feature:pos=false:v=false"};

struct AblationSettings : CompareSettings {
  AblationSettings() {
    methods = kAblationMethods;
    out = "runs/ablation";
  }
};

// {method: {"share": % of the parameters, "cost": step time against the first method's}}: the
// processor time of the training's thread, paired by seed.
Json costs(const Json& methods) {
  const auto seconds = [](const Json& result) {
    return result.at("cpu_seconds").at("seeds").get<std::vector<double>>();
  };
  const auto base = seconds(methods.begin().value());
  Json rows = Json::object();
  for (const auto& [method, result] : methods.items()) {
    auto ratios = seconds(result);
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] /= base[i];
    rows[method] = {{"new_parameters", result.at("temperature_parameters")},
                    {"share", 100 * result.at("temperature_parameters").get<double>() /
                                  result.at("parameters").get<double>()},
                    {"cost", summary(ratios)}};
  }
  return rows;
}

plot::Table ablation_cost_table(const Json& document) {
  plot::Table table{
      .caption =
          "What each costs: parameters, their share of the model, and the processor time of "
          "a training step against the first method's",
      .header = {"method", "new parameters", "share %", "step time"}};
  for (const auto& [method, row] : document.at("costs").items())
    table.rows.push_back(
        {plot::Cell::of(method),
         {.text = std::to_string(row.at("new_parameters").get<int64_t>()), .number = true},
         plot::Cell::of(row.at("share").get<double>(), {}, 3),
         plot::Cell::of(row.at("cost").at("mean").get<double>(),
                        row.at("cost").at("sd").get<double>(), 2)});
  return table;
}

std::string cost_text(const Json& document) {
  std::vector<std::vector<std::string>> lines = {
      {"method", "new parameters", "share %", "step time"}};
  for (const auto& [method, row] : document.at("costs").items()) {
    const Json& cost = row.at("cost");
    lines.push_back({method, std::to_string(row.at("new_parameters").get<int64_t>()),
                     fixed(row.at("share"), 3),
                     fixed(cost.at("mean"), 2) + " ± " + fixed(cost.at("sd"), 2)});
  }
  return aligned(lines);
}

plot::HeatMap accuracy_map(const Json& methods) {
  const auto sizes = sizes_of(methods, "accuracy");
  plot::HeatMap map{.title = "Accuracy by entries of the book",
                    .x_label = "entries of the book",
                    .rows = methods.size(),
                    .columns = sizes.size(),
                    .column_labels = sizes,
                    .min = 0,
                    .max = 100,
                    .scale_label = "% right",
                    .decimals = 1,
                    .show_values = true};
  for (const auto& [method, result] : methods.items()) {
    map.row_labels.push_back(method);
    for (const auto& [size, row] : result.at("accuracy").items())
      map.values.push_back(row.at("mean"));
  }
  return map;
}

plot::Figure ablation_figure(const Json& document) {
  plot::Figure made{
      .title = "", .panels = {}, .columns = 1, .panel_width = 900, .panel_height = 460};
  made.panels.emplace_back(accuracy_map(document.at("results")));
  return made;
}

plot::HtmlReport ablation_page(const Json& document) {
  const Json& methods = document.at("results");
  plot::HtmlReport report("Which part of SSA does the work?");
  report.paragraph(
      "The phone-book task for SSA with parts of it taken away or replaced, and for simpler rules: "
      "YaRN's temperature, a constant, and the frequency of the token. Same data, first weights, "
      "seeds and budget for all.");
  report.figure(ablation_figure(document), "Means over the seeds.");
  report.table(metric_table(methods, "accuracy", "Accuracy in %, by entries of the book", 1));
  report.table(ablation_cost_table(document));
  report.table(metric_table(methods, "answer_weight", "Weight on the right number", 3));
  say_how_made(report, document, "tempera study ablation");
  return report;
}

class AblationStudy final : public Study {
 public:
  void declare(config::Options& options) override { settings_.declare(options); }
  bool json() const override { return settings_.json; }

  StudyReport run() override {
    Json document = compare(settings_, "study ablation");
    document["costs"] = costs(document.at("results"));
    write_study(settings_.out, document, ablation_figure(document), ablation_page(document));
    const std::string over = over_seeds(settings_.seeds);
    return {document,
            concat("accuracy %", over, ", by entries of the book\n",
                   metric_text(document.at("results"), "accuracy", 1),
                   "\nparameters and step time against ", document.at("results").begin().key(),
                   over, "\n", cost_text(document)),
            settings_.out};
  }

 private:
  AblationSettings settings_;
};

}  // namespace

std::shared_ptr<Study> make_ablation_study() { return std::make_shared<AblationStudy>(); }

}  // namespace tempera::study
