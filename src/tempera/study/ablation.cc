#include "tempera/base/error.h"
#include "tempera/base/text_table.h"
#include "tempera/study/compare.h"
#include "tempera/study/pool.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"

namespace tempera::study {
namespace {

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

struct Cost {
  int64_t new_parameters = 0;
  double share = 0;  // % of the parameters
  Summary step;      // processor time of the training's thread against the first method's

  static void fields(auto& self, auto&& field) {
    field("new_parameters", self.new_parameters);
    field("share", self.share);
    field("cost", self.step);
  }
};

struct AblationResults {
  Results comparison;
  ByName<Cost> costs;

  static void fields(auto& self, auto&& field) {
    Results::fields(self.comparison, field);
    field("costs", self.costs);
  }
};

ByName<Cost> costs_of(const ByName<MethodResults>& methods) {
  const auto& base = methods.front().value.cpu_seconds.seeds;
  ByName<Cost> costs;
  for (const auto& [method, result] : methods) {
    auto ratios = result.cpu_seconds.seeds;  // paired by seed
    for (size_t i = 0; i < ratios.size(); ++i) ratios[i] /= base[i];
    const auto added = static_cast<double>(result.temperature_parameters);
    costs.push_back({method,
                     {.new_parameters = result.temperature_parameters,
                      .share = 100 * added / static_cast<double>(result.parameters),
                      .step = summarise(std::move(ratios))}});
  }
  return costs;
}

plot::Table ablation_cost_table(const ByName<Cost>& costs) {
  plot::Table table{
      .caption =
          "What each costs: parameters, their share of the model, and the processor time of "
          "a training step against the first method's",
      .header = {"method", "new parameters", "share %", "step time"}};
  for (const auto& [method, cost] : costs)
    table.rows.push_back({plot::Cell::of(method),
                          {.text = std::to_string(cost.new_parameters), .number = true},
                          plot::Cell::of(cost.share, {}, 3),
                          plot::Cell::of(cost.step.mean, cost.step.sd, 2)});
  return table;
}

std::string cost_text(const ByName<Cost>& costs) {
  TextTable table({"method", "new parameters", "share %", "step time"});
  for (const auto& [method, cost] : costs)
    table.add({method, std::to_string(cost.new_parameters), fixed(cost.share, 3),
               fixed(cost.step.mean, 2) + " ± " + fixed(cost.step.sd, 2)});
  return table.text();
}

plot::HeatMap accuracy_map(const MethodMetrics& methods) {
  const auto sizes = sizes_of(methods);
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
  for (const auto& [method, accuracy] : methods) {
    map.row_labels.push_back(method);
    for (const auto& [size, summary] : accuracy) map.values.push_back(summary.mean);
  }
  return map;
}

plot::Figure ablation_figure(const MethodMetrics& accuracy) {
  plot::Figure made{
      .title = "", .panels = {}, .columns = 1, .panel_width = 900, .panel_height = 460};
  made.panels.emplace_back(accuracy_map(accuracy));
  return made;
}

plot::HtmlReport ablation_page(const AblationResults& results) {
  const auto& methods = results.comparison.methods;
  const auto accuracy = metric_of(methods, &MethodResults::accuracy);
  TEMPERA_CHECK(!accuracy.empty(), "the results have no accuracy");
  plot::HtmlReport report("Which part of SSA does the work?");
  report.summary(
      {.asked = concat("Which part of SSA helps on the phone-book task, and do simpler rules as "
                       "well? ",
                       methods.size(), " methods, ", results.comparison.seeds,
                       results.comparison.seeds == 1 ? " seed each." : " seeds each."),
       .answer = verdict(accuracy, {.what = "the accuracy", .unit = " %", .size = "entries"}),
       .not_shown = {"other tasks and large models: this is one layer of width 64",
                     "small differences: the best of so many methods is partly the luckiest"}});
  report.paragraph(
      "The phone-book task for SSA with parts of it taken away or replaced, and for simpler rules: "
      "YaRN's temperature, a constant, and the frequency of the token. Same data, first weights, "
      "seeds and budget for all.");
  report.figure(ablation_figure(accuracy), "Means over the seeds.");
  report.table(metric_table(accuracy, "Accuracy in %, by entries of the book", 1));
  report.table(ablation_cost_table(results.costs));
  report.table(
      metric_table(methods, &MethodResults::answer_weight, "Weight on the right number", 3));
  say_how_made(report, results.comparison.tempera, results.comparison.settings,
               "tempera study ablation");
  return report;
}

class AblationStudy final : public Study {
 public:
  void declare(config::Options& options) override { settings_.declare(options); }
  bool json() const override { return settings_.json; }

  plot::HtmlReport report_of(const std::filesystem::path& file) const override {
    return ablation_page(read_result<AblationResults>(file));
  }

  void validate() const override { settings_.validate(); }
  std::optional<config::Device> shared_device() const override { return settings_.training.device; }

  std::optional<StudyReport> run(dist::World& world) override {
    auto comparison = compare(settings_, "study ablation", world);
    if (!comparison) return std::nullopt;
    AblationResults results{.comparison = *std::move(comparison), .costs = {}};
    results.costs = costs_of(results.comparison.methods);
    const auto accuracy = metric_of(results.comparison.methods, &MethodResults::accuracy);
    const Json document = as_json(results);
    write_study(settings_.out, document, ablation_figure(accuracy), ablation_page(results));
    const std::string over = over_seeds(settings_.seeds);
    return StudyReport{document,
                       concat("accuracy %", over, ", by entries of the book\n",
                              metric_text(accuracy, 1), "\nparameters and step time against ",
                              accuracy.front().name, over, "\n", cost_text(results.costs)),
                       settings_.out};
  }

 private:
  AblationSettings settings_;
};

}  // namespace

std::shared_ptr<Study> make_ablation_study() { return std::make_shared<AblationStudy>(); }

}  // namespace tempera::study
