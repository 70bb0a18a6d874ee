#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tempera/text/jinja/value.h"

namespace tempera::text::jinja {

struct FilterCall {
  const std::string& name;
  const Value& value;
  const Arguments& arguments;
  Budget& budget;
};

// The filters that go through items.
std::vector<std::pair<std::string, Value (*)(const FilterCall&)>> sequence_filters();

}  // namespace tempera::text::jinja
