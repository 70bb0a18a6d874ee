#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/temperature/method.h"

namespace tempera {

// Everything the program knows about a method; verbs, checkpoints, tests and Python read it from
// here.
struct MethodEntry {
  std::string name = {};
  std::string formula = {};
  std::string help = {};
  std::string folds = "no";  // the weights that take it up exactly: "W_q", "W_v"; "no": none can
  std::vector<config::Declaration> options = {};
  MethodOptions loaded = {};  // other defaults on a model that was trained without the method
  std::optional<MethodOptions> plain =
      {};  // options with which it starts as plain attention, to the bit
  std::vector<MethodOptions> variants = {
      {}};  // what the contract test runs; each acts within a few rows
  std::shared_ptr<Method> (*make)(const LayerShape& shape, const MethodOptions& options) = nullptr;
};

// For MethodEntry::make.
template <class T>
std::shared_ptr<Method> make_as(const LayerShape& shape, const MethodOptions& options) {
  return std::make_shared<T>(shape, options);
}

const std::vector<MethodEntry>& method_registry();
// Throws UsageError with the nearest known name.
const MethodEntry& find_method(std::string_view name);

// "ssa", or a product such as "head,value" or "ssa+head". Throws UsageError for unknown and
// repeated names.
std::vector<std::string> split_methods(std::string_view text);

// The options of a method or product, to be declared beside the option that names it. Where two
// parts have an option of the same name, both are written METHOD.OPTION.
std::vector<config::Declaration> method_declarations(std::string_view text, Origin origin);

// The full description from the values of those declarations; what is not given has its default.
std::vector<MethodSpec> method_specs(std::string_view text, const MethodOptions& given,
                                     Origin origin);

// Builds a method from its description, as read from the options or from a checkpoint.
std::shared_ptr<Method> make_method(const std::vector<MethodSpec>& specs, const LayerShape& shape);

}  // namespace tempera
