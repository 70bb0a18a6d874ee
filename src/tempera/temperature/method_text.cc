#include "tempera/temperature/method_text.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

bool declares(const std::vector<config::Declaration>& options, std::string_view name) {
  return std::ranges::find(options, name, &config::Declaration::name) != options.end();
}

// METHOD.OPTION of an option as its own text has it.
std::string full_name(const MethodText& text, const std::string& option) {
  if (option.find('.') != std::string::npos) return option;
  for (const auto& method : split_methods(text.methods))
    if (declares(find_method(method).options, option)) return method + "." + option;
  return option;
}

}  // namespace

MethodText parse_method_text(std::string_view text, std::string_view where, Origin origin) {
  size_t end = text.find(':');
  MethodText parsed{.methods = std::string(text.substr(0, end))};
  while (end != std::string_view::npos) {
    const size_t begin = end + 1;
    end = text.find(':', begin);
    const auto pair = text.substr(begin, end == std::string_view::npos ? end : end - begin);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw UsageError(concat(where, ": '", pair, "' in '", text, "'; OPTION=VALUE expected"));
    parsed.options[std::string(pair.substr(0, equals))] = std::string(pair.substr(equals + 1));
  }
  const auto values = resolve_options(parsed.methods, method_declarations(parsed.methods, origin),
                                      parsed.options, {});
  for (auto& [name, value] : parsed.options) value = values.at(name);
  return parsed;
}

MethodText product_of(const std::vector<MethodText>& parts) {
  MethodText product;
  for (const auto& part : parts)
    product.methods += concat(product.methods.empty() ? "" : ",", part.methods);
  const auto declared = method_declarations(product.methods, Origin::kScratch);
  for (const auto& part : parts)
    for (const auto& [option, value] : part.options) {
      // A name that several parts have is written with the part in front.
      const std::string full = full_name(part, option);
      product.options[declares(declared, full) ? full : full.substr(full.find('.') + 1)] = value;
    }
  return product;
}

}  // namespace tempera
