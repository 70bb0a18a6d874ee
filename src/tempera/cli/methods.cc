#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/config/settings.h"
#include "tempera/temperature/registry.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;

// The defaults are GPT-2 small.
struct MethodsSettings {
  std::vector<std::string> methods;
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t vocabulary = 50257;
  int64_t length = 1024;
  int64_t parameters = 0;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("methods", methods,
                       "methods, or products such as head,value; not given: all");
    options.section(config::Section::kModel);
    options.option("layers", layers, config::range(1, 1e4), "transformer blocks");
    options.option("width", width, config::range(1, 1e6), "hidden size");
    options.option("heads", heads, config::range(1, 4096), "attention heads per layer");
    options.option("kv-heads", kv_heads, config::range(0, 4096),
                   "key-value heads; 0: as many as heads");
    options.option("head-size", head_size, config::range(0, 4096),
                   "size of a head; 0: width / heads");
    options.option("vocabulary", vocabulary, config::range(1, 1e9), "vocabulary size");
    options.option("length", length, config::range(2, 1e12), "training context length");
    options.option("parameters", parameters, config::range(0, 1e15),
                   "total parameters, for the share of the method; 0: estimated from the shape");
    config::json_option(options, json);
  }
};

LayerShape layer_shape(const MethodsSettings& settings) {
  const int64_t size =
      settings.head_size > 0 ? settings.head_size : settings.width / settings.heads;
  const int64_t kv_heads = settings.kv_heads > 0 ? settings.kv_heads : settings.heads;
  if (settings.head_size == 0 && settings.width % settings.heads != 0) {
    throw UsageError(concat("a width of ", settings.width, " has no ", settings.heads,
                            " heads of equal size; give --head-size"));
  }
  if (settings.heads % kv_heads != 0) {
    throw UsageError(concat(kv_heads, " key-value heads do not divide ", settings.heads,
                            " query heads; change --heads or --kv-heads"));
  }
  return {.layers = settings.layers,
          .layer = 0,
          .d_model = settings.width,
          .q_heads = settings.heads,
          .kv_heads = kv_heads,
          .qk_size = size,
          .v_size = size,
          .vocabulary = settings.vocabulary,
          .trained_length = settings.length,
          .kind = AttentionKind::kCausal};
}

// Tied embeddings, attention, and 8 width^2 for the two or three matrices of the usual MLPs.
int64_t model_parameters(const MethodsSettings& settings, const LayerShape& shape) {
  if (settings.parameters > 0) return settings.parameters;
  const int64_t attention = 2 * shape.d_model * shape.qk_size * (shape.q_heads + shape.kv_heads);
  return shape.vocabulary * shape.d_model +
         shape.layers * (attention + 8 * shape.d_model * shape.d_model);
}

struct Row {
  std::string name, formula, help, folds;
  std::vector<config::Declaration> options;
  int64_t parameters = 0;  // of all layers
  double share = 0;
};

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

Row describe(const std::string& text, const LayerShape& shape, int64_t model) {
  std::vector<std::string> names, formulas, helps, folds;
  for (const auto& name : split_methods(text)) {
    const MethodEntry& entry = find_method(name);
    names.push_back(entry.name);
    formulas.push_back(entry.formula);
    helps.push_back(entry.help);
    folds.push_back(entry.folds);
  }
  const auto method = make_method(method_specs(text, {}, Origin::kScratch), shape);
  const int64_t parameters = method->parameter_count() * shape.layers;
  return {.name = joined(names, ","),
          .formula = joined(formulas, "; "),
          .help = joined(helps, "; "),
          .folds = method->constant() ? joined(folds, ", ") : "no",
          .options = method_declarations(text, Origin::kScratch),
          .parameters = parameters,
          .share = static_cast<double>(parameters) / static_cast<double>(model)};
}

std::string domain_text(const config::Declaration& option) {
  if (!option.domain.choices.empty()) return joined(option.domain.choices, "|");
  return config::range_text(option.domain);
}

void print_table(const std::vector<Row>& rows, int64_t model) {
  const std::string indent(15, ' ');
  std::cout << std::fixed << std::setprecision(1) << "New parameters in a model of "
            << static_cast<double>(model) / 1e6 << " million:\n"
            << std::setprecision(4);
  for (const auto& row : rows) {
    std::cout << "\n"
              << std::left << std::setw(14) << row.name << " " << row.formula << "\n"
              << indent << row.help << "\n"
              << indent << row.parameters << " parameters (" << 100 * row.share
              << " %), folds: " << row.folds << "\n";
    for (const auto& option : row.options) {
      const auto domain = domain_text(option);
      std::cout << indent << option.name << " = " << config::plain_text(option.value) << ": "
                << option.help << (domain.empty() ? "" : " (" + domain + ")") << "\n";
    }
  }
}

ordered_json option_json(const config::Declaration& option) {
  ordered_json result{
      {"name", option.name}, {"default", config::json_value(option.value)}, {"help", option.help}};
  if (!option.domain.choices.empty()) result["choices"] = option.domain.choices;
  if (option.domain.range) {
    result["min"] = option.domain.range->low;
    result["max"] = option.domain.range->high;
  }
  return result;
}

void print_json(const std::vector<Row>& rows, const LayerShape& shape, int64_t model) {
  ordered_json result{{"model",
                       {{"parameters", model},
                        {"layers", shape.layers},
                        {"width", shape.d_model},
                        {"heads", shape.q_heads},
                        {"kv_heads", shape.kv_heads},
                        {"head_size", shape.qk_size}}},
                      {"methods", ordered_json::array()}};
  for (const auto& row : rows) {
    ordered_json options = ordered_json::array();
    for (const auto& option : row.options) options.push_back(option_json(option));
    result["methods"].push_back({{"name", row.name},
                                 {"formula", row.formula},
                                 {"help", row.help},
                                 {"options", std::move(options)},
                                 {"parameters", row.parameters},
                                 {"share", row.share},
                                 {"folds", row.folds}});
  }
  std::cout << result.dump(2) << "\n";
}

void run(const MethodsSettings& settings) {
  const LayerShape shape = layer_shape(settings);
  const int64_t model = model_parameters(settings, shape);
  auto names = settings.methods;
  if (names.empty()) {
    for (const auto& entry : method_registry()) names.push_back(entry.name);
  }
  std::vector<Row> rows;
  for (const auto& name : names) rows.push_back(describe(name, shape, model));
  if (settings.json) {
    print_json(rows, shape, model);
  } else {
    print_table(rows, model);
  }
}

}  // namespace

Verb methods_verb() {
  return make_verb<MethodsSettings>(
      "methods", "lists the temperature methods with formula, options and parameters",
      {{"tempera methods", "all of them"},
       {"tempera methods ssa head,value --layers 30 --width 576 --heads 9",
        "what two add to a model of this shape"}},
      run);
}

}  // namespace tempera::cli
