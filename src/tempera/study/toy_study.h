#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/study/folder.h"
#include "tempera/study/methods.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"

namespace tempera::study {

// The frame of a study that trains one layer for every method and seed. Settings are ToySettings
// with declare() and validate().
template <class Settings>
class ToyStudy : public Study {
 public:
  void declare(config::Options& options) final { settings_.declare(options); }
  bool json() const final { return settings_.json; }

  StudyReport run() final {
    settings_.validate();
    const auto methods = parse_methods(settings_.methods);
    for (const auto& method : methods) check(method);
    StudyFolder folder(settings_.out, "study " + name(), config::describe(settings_),
                       declare_fresh<Settings>, settings_.fresh);
    folder.keep();
    const auto jobs =
        run_grid({.title = name(),
                  .methods = methods,
                  .seeds = settings_.seeds,
                  .threads = settings_.threads,
                  .make = [&](const NamedMethod& method, int64_t seed,
                              const auto& report) { return job(method, seed, report); }},
                 folder);
    Json document{{"tempera", std::string(tempera::version())},
                  {"study", name()},
                  {"seeds", settings_.seeds},
                  {"settings", config::to_json(config::describe(settings_))}};
    add_baselines(document);
    Json& results = document["results"] = Json::object();
    for (size_t i = 0; i < methods.size(); ++i) results[methods[i].label] = result_of(jobs[i]);
    write_study(folder.path(), document, figure(document), page(document));
    return {document, text(document), settings_.out};
  }

 protected:
  using Json = nlohmann::ordered_json;

  virtual std::string name() const = 0;
  // Throws for a method that is unfit.
  virtual void check(const NamedMethod& method) const = 0;
  // One layer, trained and measured.
  virtual Json job(const NamedMethod& method, int64_t seed, const ReportStep& report) const = 0;
  virtual void add_baselines(Json& /*document*/) const {}
  // Of a method, from the jobs of its seeds.
  virtual Json result_of(const std::vector<Json>& seeds) const = 0;
  virtual plot::Figure figure(const Json& document) const = 0;
  virtual plot::HtmlReport page(const Json& document) const = 0;
  virtual std::string text(const Json& document) const = 0;

  static Json summaries(const std::vector<Json>& seeds, const std::vector<const char*>& metrics) {
    Json result = Json::object();
    for (const char* metric : metrics) result[metric] = summarise(seeds, metric);
    return result;
  }

  Settings settings_;
};

}  // namespace tempera::study
