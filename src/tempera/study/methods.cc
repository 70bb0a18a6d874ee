#include "tempera/study/methods.h"

#include "tempera/base/error.h"
#include "tempera/study/pool.h"
#include "tempera/temperature/method_text.h"

namespace tempera::study {

namespace {
using Json = nlohmann::ordered_json;
}

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

std::vector<std::vector<Json>> run_grid(const MethodGrid& grid, const StudyFolder& folder) {
  std::vector<Piece> pieces;
  for (int64_t seed = 0; seed < grid.seeds; ++seed)
    for (const auto& method : grid.methods)
      pieces.push_back({.label = concat(method.label, " seed ", seed),
                        .file = folder.result_file(method.label, seed),
                        .make = [&grid, &method, seed](const auto& report) {
                          return grid.make(method, seed, report);
                        }});
  run_pieces(grid.title, pieces, grid.threads);
  std::vector<std::vector<Json>> results(grid.methods.size());
  for (size_t i = 0; i < pieces.size(); ++i)
    results[i % grid.methods.size()].push_back(read_result(pieces[i].file));
  return results;
}

}  // namespace tempera::study
