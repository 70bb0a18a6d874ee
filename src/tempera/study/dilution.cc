#include <cmath>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/output.h"
#include "tempera/study/compare.h"
#include "tempera/study/dilution_model.h"
#include "tempera/study/pool.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"
#include "tempera/temperature/registry.h"

namespace tempera::study {
namespace {

namespace fs = std::filesystem;

plot::LineChart by_entries(const Results& results, Metric MethodResults::*metric,
                           const std::string& title, plot::Axis y) {
  return chart_by_size(
      metric_of(results.methods, metric),
      {.title = title, .x = {.label = "entries of the book", .log = true}, .y = std::move(y)});
}

plot::Figure dilution_figure(const Results& results) {
  plot::Figure made{.title = "", .panels = {}, .columns = 2};
  auto entropy =
      by_entries(results, &MethodResults::answer_entropy,
                 "Entropy of the rows that look up a number", {.label = "nats", .min = 0});
  plot::Series uniform{.name = "all of the book alike", .dashed = true, .color = plot::kMuted};
  for (const double entries : entropy.x.ticks) {
    uniform.x.push_back(entries);
    uniform.y.push_back(std::log(2 * entries));  // a name and a number each
  }
  entropy.series.push_back(std::move(uniform));
  made.panels.emplace_back(std::move(entropy));
  made.panels.emplace_back(by_entries(results, &MethodResults::answer_weight,
                                      "Weight on the right number",
                                      {.label = "weight", .min = 0, .max = 1}));
  made.panels.emplace_back(by_entries(results, &MethodResults::accuracy, "Accuracy",
                                      {.label = "%", .min = 0, .max = 100}));
  made.panels.emplace_back(by_entries(results, &MethodResults::query_scale,
                                      "Inverse temperature of the queries",
                                      {.label = "mean of a_q"}));
  return made;
}

plot::HtmlReport dilution_page(const Results& results) {
  plot::HtmlReport report("How attention thins out");
  report.summary(
      {.asked = "Does the attention of phone-book models, trained on small books, stay on the "
                "right number in large ones?",
       .answer =
           verdict(metric_of(results.methods, &MethodResults::answer_weight),
                   {.what = "the weight on the right number", .size = "entries", .decimals = 3}),
       .not_shown = {"large models and natural text: `tempera study dilution MODEL` measures those",
                     "that more weight is what makes answers right: both are measured, and neither "
                     "is the cause by that"}});
  report.paragraph(
      "Entropy and weight are those of the rows at which a number is asked for, in the head that "
      "puts most weight on the right number.");
  report.figure(dilution_figure(results),
                "Means over the seeds; the bands are 95 % intervals of the mean. The dashed line "
                "is the entropy of equal weights on all tokens of the book.");
  report.table(metric_table(results.methods, &MethodResults::answer_entropy,
                            "Entropy in nats, by entries", 2));
  report.table(metric_table(results.methods, &MethodResults::answer_weight,
                            "Weight on the right number", 3));
  report.table(metric_table(results.methods, &MethodResults::accuracy, "Accuracy in %", 1));
  say_how_made(report, results.tempera, results.settings, "tempera study dilution");
  return report;
}

Results read_run(const std::string& run) {
  const fs::path file = fs::path(run) / "results.json";
  if (!fs::is_regular_file(file))
    throw UsageError(concat("--run ", run,
                            ": there is no results.json; give the folder of a "
                            "finished `tempera compare`"));
  return read_result<Results>(file);
}

void check_answers(const Results& results) {
  TEMPERA_CHECK(!results.methods.empty(), "the run holds no results of a comparison");
  for (const auto& [method, result] : results.methods)
    TEMPERA_CHECK(!result.answer_entropy.empty() && !result.answer_weight.empty(), "method ",
                  method,
                  ": the results have no attention on the answers; they come from a task that "
                  "knows its answers, such as phonebook, of this version");
}

class DilutionStudy final : public Study {
 public:
  DilutionStudy() {
    comparison_.out = "runs/dilution";
    comparison_.methods.clear();
    for (const auto& entry : method_registry()) comparison_.methods.push_back(entry.name);
  }

  void declare(config::Options& options) override {
    options.positional(
        "model", model_,
        "a language model: a folder or a .gguf file; not given: phone-book models are "
        "trained");
    if (model_) {
      text_.declare(options);
      return;
    }
    options.option("run", run_,
                   "folder of a finished `tempera compare` to read in place of training");
    comparison_.declare(options);
  }

  bool json() const override { return model_ ? text_.json : comparison_.json; }

  plot::HtmlReport report_of(const fs::path& file) const override {
    const Json document = read_json(file);
    if (document.contains("windows")) return report_of_model_dilution(file);
    const Results results = read_result<Results>(file);
    check_answers(results);
    return dilution_page(results);
  }

  void validate() const override {
    if (model_) return;
    if (!comparison_.data.text.empty())
      throw UsageError("--text goes with a model: tempera study dilution MODEL --text FILE");
    if (!run_) comparison_.validate();
  }

  std::optional<config::Device> shared_device() const override {
    if (model_ || run_) return std::nullopt;
    return comparison_.training.device;
  }

  std::optional<StudyReport> run(dist::World& world) override {
    if (model_) return model_dilution(*model_, text_);
    const std::optional<Results> found = run_ ? read_finished() : train_all(world);
    if (!found) return std::nullopt;
    const Results& results = *found;
    const std::string over = concat(over_seeds(results.seeds), ", by entries of the book\n");
    return StudyReport{
        as_json(results),
        concat("entropy, nats", over,
               metric_text(results.methods, &MethodResults::answer_entropy, 2),
               "\nweight on the right number", over,
               metric_text(results.methods, &MethodResults::answer_weight, 3), "\naccuracy %", over,
               metric_text(results.methods, &MethodResults::accuracy, 1)),
        comparison_.out};
  }

 private:
  static void write(const fs::path& folder, const Results& results) {
    check_answers(results);
    write_study(folder, as_json(results), dilution_figure(results), dilution_page(results));
  }

  Results read_finished() const {
    NewOutput out(comparison_.out, NewOutput::Kind::kFolder);
    Results results = read_run(*run_);
    write(out.part(), results);
    out.finish();
    return results;
  }

  std::optional<Results> train_all(dist::World& world) const {
    auto results = compare(comparison_, "study dilution", world);
    if (results) write(comparison_.out, *results);
    return results;
  }

  std::optional<std::string> model_, run_;
  CompareSettings comparison_;
  ModelDilutionSettings text_;
};

}  // namespace

std::shared_ptr<Study> make_dilution_study() { return std::make_shared<DilutionStudy>(); }

}  // namespace tempera::study
