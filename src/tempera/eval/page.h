#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tempera/plot/html.h"

namespace tempera::eval {

// The document of an evaluation (eval.json) as a page: what was measured and found, the picture and
// the table of the task, with intervals where it has some. Throws Error where it is no such
// document.
plot::HtmlReport page_of(const nlohmann::ordered_json& document);

}  // namespace tempera::eval
