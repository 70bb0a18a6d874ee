#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tempera/config/value.h"

namespace tempera::config {

// A value as a file holds it, before its option is known.
struct Raw {
  struct EmptyTable {};
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<Raw>, EmptyTable>
      value;
};

// A value that was given, and where: a file, a checkpoint's metadata, the command line.
struct Given {
  std::variant<Raw, std::string> value;  // a string is the text of a command-line argument
  std::string origin;
};

// The values given for options by name (groups flattened to dotted names), in layers: the later
// wins.
class Sources {
 public:
  using Layer = std::map<std::string, Given, std::less<>>;

  // Throws UsageError, and nothing else, whatever the bytes are. `origin` names them in messages.
  void add_toml(std::string_view text, std::string_view origin);
  // The file at this path; throws UsageError if it cannot be read.
  void add_toml_file(const std::string& path);
  void add_json(const nlohmann::ordered_json& object, std::string_view origin);
  void add(Layer layer) { layers_.push_back(std::move(layer)); }

  // What the last layer says that knows the option by either name; null if none does.
  const Given* find(std::string_view name, std::string_view alias) const;
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::vector<Layer> layers_;
};

// The value for an option of this kind; throws UsageError naming the option, the value and the
// domain.
Value convert(const Given& given, std::string_view name, Kind kind, bool optional,
              const Domain& domain);

}  // namespace tempera::config
