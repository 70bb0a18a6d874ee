#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tempera/lens/subject.h"
#include "tempera/plot/chart.h"

namespace tempera::lens {

// A head by its place in Subject::view, as --draw names it: "2.5" is head 5 of attention 2.
struct HeadName {
  int64_t attention = 0, head = 0;
};
HeadName parse_head(const std::string& name, const Subject& subject);

// Of one or two subjects, by the name of the file: overview, position, and the map of every head
// that is named.
std::vector<std::pair<std::string, plot::Figure>> pictures(std::span<const Subject> subjects,
                                                           std::span<const HeadName> heads);

}  // namespace tempera::lens
