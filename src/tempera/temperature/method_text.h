#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tempera/temperature/shape.h"

namespace tempera {

// A method as users write it: "ssa", a product "head+value", with options "focal:t=0.2".
struct MethodText {
  std::string methods;
  MethodOptions options = {};  // those that are written
};

// Throws UsageError for what is unknown; `where` is the option that it was given to.
MethodText parse_method_text(std::string_view text, std::string_view where, Origin origin);

// All of them at once, each with its own options.
MethodText product_of(const std::vector<MethodText>& parts);

}  // namespace tempera
