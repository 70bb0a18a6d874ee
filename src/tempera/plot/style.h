#pragma once

#include <string_view>

namespace tempera::plot {

// theme.css and page.css, which are built in.
std::string_view page_style();

}  // namespace tempera::plot
