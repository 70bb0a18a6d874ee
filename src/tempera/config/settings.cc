#include "tempera/config/settings.h"

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"

namespace tempera::config {
nlohmann::ordered_json json_value(const Value& value) {
  return std::visit(
      [](const auto& held) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return nullptr;
        else
          return held;
      },
      value);
}

nlohmann::ordered_json to_json(const Options& options) {
  auto root = nlohmann::ordered_json::object();
  for (const Entry& entry : options.entries()) {
    if (entry.declaration.once) continue;
    nlohmann::ordered_json* object = &root;
    std::string_view name = entry.name();
    for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
      object = &(*object)[std::string(name.substr(0, dot))];
      name.remove_prefix(dot + 1);
    }
    (*object)[std::string(name)] = json_value(entry.value);
  }
  return root;
}

std::vector<Difference> differences(const Options& given, const Options& stored) {
  static const std::string kNotSet = toml_text(Value{});
  std::vector<Difference> result;
  for (const Entry& entry : given.entries()) {
    if (entry.declaration.local || entry.declaration.once) continue;
    const Entry* other = stored.find(entry.name());
    if (other && other->value == entry.value) continue;
    result.push_back(
        {entry.name(), toml_text(entry.value), other ? toml_text(other->value) : kNotSet});
  }
  for (const Entry& entry : stored.entries())
    if (!entry.declaration.local && !entry.declaration.once && !given.find(entry.name()))
      result.push_back({entry.name(), kNotSet, toml_text(entry.value)});
  return result;
}

std::string to_text(const std::vector<Difference>& differences) {
  std::string text;
  for (const auto& [key, given, stored] : differences)
    text += concat(key, ": given ", given, ", in the run ", stored, "\n");
  return text;
}

}  // namespace tempera::config
