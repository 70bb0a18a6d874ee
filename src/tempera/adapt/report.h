#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/plot/chart.h"
#include "tempera/plot/html.h"

// What a calibration found, as words and pictures. `result`:
//
//   {"model", "learned", "numbers", "context", "length", "rope_base", "tokens", "seconds",
//    "measures": {"before": .., "after": .., "RoPE alone": .., "norm alone": ..},  (measure.h)
//    "temperatures": [..], "warnings": [..]}
namespace tempera::adapt {

// Where the model after is worse than the one before: a line each.
std::vector<std::string> worse_places(const nlohmann::ordered_json& before,
                                      const nlohmann::ordered_json& after);

std::string to_text(const nlohmann::ordered_json& result);
plot::Figure to_figure(const nlohmann::ordered_json& result);
plot::HtmlReport to_html(const nlohmann::ordered_json& result);

}  // namespace tempera::adapt
