// template_tool: reads one JSON object a line, writes one JSON object a line.
//   {"template": text, "variables": {...}, "now": [year, month, day, hour, minute, second]}
//     gives {"text": ..., "spans": [[begin, end], ...]} or {"error": ...}
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tempera/base/error.h"
#include "tempera/text/jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;

tempera::text::RenderOptions render_options(const Json& request) {
  tempera::text::RenderOptions options;
  if (!request.contains("now")) return options;
  const auto given = request["now"].get<std::vector<int>>();
  std::tm time{};
  time.tm_year = given.at(0) - 1900;
  time.tm_mon = given.at(1) - 1;
  time.tm_mday = given.at(2);
  time.tm_hour = given.at(3);
  time.tm_min = given.at(4);
  time.tm_sec = given.at(5);
  time.tm_isdst = -1;
  std::mktime(&time);  // fills in the day of the week and of the year
  options.now = time;
  return options;
}

Json answer(const Json& request) {
  try {
    const tempera::text::Template read(request.at("template").get<std::string>(), "template");
    const auto rendered = read.render(request.at("variables"), render_options(request));
    Json spans = Json::array();
    for (const auto& span : rendered.generated) spans.push_back({span.begin, span.end});
    return {{"text", rendered.text}, {"spans", spans}};
  } catch (const tempera::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(Json::parse(line)).dump() << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
