#pragma once

#include <string>
#include <string_view>

#include "tempera/plot/chart.h"

namespace tempera::plot {

// The numbers behind a figure, whatever its charts are, a line for each:
//
//   chart,series,x,y,low,high
//
// Of bars, x is the category; of a heat map, x is the column, the series the row and y the value.
// Numbers are written so that they are read back as the same; what is not finite is empty.
std::string to_csv(const Figure& figure);

// A field as CSV has it: quoted where it holds a comma, a quote or an end of line.
std::string csv_field(std::string_view text);

}  // namespace tempera::plot
