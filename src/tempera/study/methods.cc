#include "tempera/study/methods.h"

#include "tempera/base/error.h"
#include "tempera/temperature/method_text.h"

namespace tempera::study {

NamedMethod parse_method(const std::string& text) {
  const MethodText parsed = parse_method_text(text, "--methods", Origin::kScratch);
  NamedMethod method{.label = text, .temperature = {}};
  method.temperature.method = parsed.methods;
  method.temperature.options = parsed.options;
  return method;
}

std::vector<NamedMethod> parse_methods(const std::vector<std::string>& texts) {
  std::vector<NamedMethod> methods;
  for (const auto& text : texts) {
    methods.push_back(parse_method(text));
    for (size_t i = 0; i + 1 < methods.size(); ++i)
      if (methods[i].label == text) throw UsageError(concat("--methods: ", text, " given twice"));
  }
  if (methods.empty()) throw UsageError("--methods: none given; see `tempera methods`");
  return methods;
}

}  // namespace tempera::study
