#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/config/sources.h"

namespace tempera::config {

// The entries of a settings struct with the values it holds.
template <class Settings>
Options describe(Settings settings) {
  Options options;
  settings.declare(options);
  return options;
}

// The defaults, overridden by the sources; throws UsageError for unknown names and wrong values.
template <class Settings>
Settings from_sources(const Sources& sources) {
  Settings settings;
  Options options(sources);
  settings.declare(options);
  options.check_known(sources);
  options.check_complete();
  return settings;
}

template <class Settings>
Settings from_toml(std::string_view text, std::string_view origin) {
  Sources sources;
  sources.add_toml(text, origin);
  return from_sources<Settings>(sources);
}

template <class Settings>
Settings from_json(const nlohmann::ordered_json& object, std::string_view origin) {
  Sources sources;
  sources.add_json(object, origin);
  return from_sources<Settings>(sources);
}

// All options with their help as comments; read back, it gives the same settings.
std::string dump_toml(const Options& options);

// A value as JSON; an unset one is null.
nlohmann::ordered_json json_value(const Value& value);

// The values as nested objects, one a group; an unset option is null. For a checkpoint's metadata.
nlohmann::ordered_json to_json(const Options& options);

// An option in which two runs differ. A name that one of them lacks has "not set" there.
struct Difference {
  std::string key;
  std::string given;
  std::string stored;
};

// Options that only say where and how to run (Declaration::local) do not count.
std::vector<Difference> differences(const Options& given, const Options& stored);
// One line each: "steps: given 2000, in the run 1000".
std::string to_text(const std::vector<Difference>& differences);

}  // namespace tempera::config
