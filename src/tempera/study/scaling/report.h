#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"
#include "tempera/study/scaling/analysis.h"

namespace tempera::study::scaling {

// A study as it is shown.
struct Shown {
  const Plan& plan;
  const Progressed& done;
  const Analysis& analysis;
};

plot::Figure figure(const Shown& study);
plot::HtmlReport page(const Shown& study, const nlohmann::ordered_json& document,
                      const std::string& command);
// For a terminal.
std::string text(const Shown& study);
// A line for each model that was trained.
std::string cells_csv(const std::vector<JobResult>& results);

}  // namespace tempera::study::scaling
