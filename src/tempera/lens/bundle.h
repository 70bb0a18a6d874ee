#pragma once

#include <string_view>

// The page's script and style as they were built; empty where the tools for it were missing.
namespace tempera::lens {

std::string_view page_script();
std::string_view page_style();

}  // namespace tempera::lens
