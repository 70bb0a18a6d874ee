#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/study/folder.h"
#include "tempera/study/methods.h"
#include "tempera/study/pool.h"
#include "tempera/study/study.h"
#include "tempera/study/tables.h"

namespace tempera::study {

// What the results of all these studies begin with.
struct StudyHead {
  std::string tempera;  // the version
  std::string study;
  int64_t seeds = 0;
  Json settings;

  static void fields(auto& self, auto&& field) {
    field("tempera", self.tempera);
    field("study", self.study);
    field("seeds", self.seeds);
    field("settings", self.settings);
  }
};

// The frame of a study that trains one layer for every method and seed. Settings are ToySettings
// with declare() and validate(). Results have a `head`, and `methods` by name.
template <class Settings, class Seed, class Results>
class ToyStudy : public Study {
 public:
  void declare(config::Options& options) final { settings_.declare(options); }
  bool json() const final { return settings_.json; }

  std::optional<config::Device> shared_device() const final { return config::Device::kCpu; }

  void validate() const final {
    settings_.validate();
    for (const auto& method : parse_methods(settings_.methods)) check(method);
  }

  std::optional<StudyReport> run(dist::World& world) final {
    const auto methods = parse_methods(settings_.methods);
    std::optional<StudyFolder> folder;
    world.first([&] {
      folder.emplace(settings_.out, "study " + name(), config::describe(settings_),
                     declare_fresh<Settings>, settings_.fresh);
      folder->keep();
    });
    const auto seeds =
        run_grid<Seed>({.title = name(),
                        .methods = methods,
                        .seeds = settings_.seeds,
                        .threads = settings_.threads,
                        .make = [&](const NamedMethod& method, int64_t seed,
                                    const auto& report) { return train(method, seed, report); }},
                       settings_.out, world);
    if (!folder) return std::nullopt;
    Results results;
    results.head = {.tempera = std::string(tempera::version()),
                    .study = name(),
                    .seeds = settings_.seeds,
                    .settings = config::to_json(config::describe(settings_))};
    add_baselines(results);
    for (size_t i = 0; i < methods.size(); ++i)
      results.methods.push_back({methods[i].label, over(seeds[i])});
    const Json document = as_json(results);
    write_study(folder->path(), document, figure(results), page(results));
    return StudyReport{document, text(results), settings_.out};
  }

  plot::HtmlReport report_of(const std::filesystem::path& file) const final {
    return page(read_result<Results>(file));
  }

 protected:
  using OfMethod = decltype(decltype(Results::methods)::value_type::value);

  virtual std::string name() const = 0;
  // Throws for a method that is unfit.
  virtual void check(const NamedMethod& method) const = 0;
  // One layer, trained and measured.
  virtual Seed train(const NamedMethod& method, int64_t seed, const ReportStep& report) const = 0;
  virtual void add_baselines(Results& /*results*/) const {}
  // Of a method, from its seeds.
  virtual OfMethod over(const std::vector<Seed>& seeds) const = 0;
  virtual plot::Figure figure(const Results& results) const = 0;
  virtual plot::HtmlReport page(const Results& results) const = 0;
  virtual std::string text(const Results& results) const = 0;

  Settings settings_;
};

}  // namespace tempera::study
