#pragma once

#include <string>
#include <vector>

#include "tempera/plot/html.h"

namespace tempera::plot {

struct NamedReport {
  std::string name;  // what tells it from the others: its folder
  HtmlReport report;
};

// Several reports as one page: a table of their answers, the curves of charts with the same title
// and axes in one chart, and then every report as a part of its own.
HtmlReport join(const std::vector<NamedReport>& reports);

// Those charts of lines that two or more reports have, a panel each: the curves bear the names of
// their reports. Of a report that has several charts alike, the first counts.
Figure common_charts(const std::vector<NamedReport>& reports);

}  // namespace tempera::plot
