#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/temperature/product.h"
#include "tempera/temperature/register.h"

// Every method: one word here, one file with a function of that name.
#define TEMPERA_METHODS(X) \
  X(softmax)               \
  X(focal)                 \
  X(focal_learned)         \
  X(ssa)                   \
  X(ssmax)                 \
  X(slope)                 \
  X(log_n)                 \
  X(llama4)                \
  X(yarn)                  \
  X(head)                  \
  X(value)                 \
  X(value_scale)

namespace tempera {

#define TEMPERA_DECLARE(name) MethodEntry method_##name();
TEMPERA_METHODS(TEMPERA_DECLARE)
#undef TEMPERA_DECLARE

namespace {

// An option of a product: the part it belongs to, its name there and its name in the product.
struct PartOption {
  const MethodEntry* part;
  const config::Declaration* declaration;
  std::string name;
};

std::vector<PartOption> part_options(std::string_view text) {
  std::vector<PartOption> found;
  for (const auto& name : split_methods(text)) {
    const MethodEntry& entry = find_method(name);
    for (const auto& option : entry.options) found.push_back({&entry, &option, option.name});
  }
  for (auto& option : found) {
    const auto same = std::ranges::count_if(found, [&](const PartOption& other) {
      return other.declaration->name == option.declaration->name;
    });
    if (same > 1) option.name = option.part->name + "." + option.declaration->name;
  }
  return found;
}

void check_shape(const LayerShape& shape) {
  TEMPERA_CHECK(
      shape.d_model > 0 && shape.q_heads > 0 && shape.kv_heads > 0 && shape.qk_size > 0 &&
          shape.v_size > 0,
      "a temperature method needs the width, heads and head sizes of its layer, all above "
      "0");
  TEMPERA_CHECK(shape.q_heads % shape.kv_heads == 0, "the ", shape.kv_heads,
                " key-value heads must divide the ", shape.q_heads, " query heads");
}

// References to entries stay valid up to here.
constexpr size_t kMostMethods = 256;

std::vector<MethodEntry>& entries() {
#define TEMPERA_ENTRY(name) method_##name(),
  static std::vector<MethodEntry> all = [] {
    std::vector<MethodEntry> known{TEMPERA_METHODS(TEMPERA_ENTRY)};
    known.reserve(kMostMethods);
    return known;
  }();
#undef TEMPERA_ENTRY
  return all;
}

}  // namespace

const std::vector<MethodEntry>& method_registry() { return entries(); }

void register_method(MethodEntry entry) {
  const bool named = !entry.name.empty() && entry.name.find_first_of(",+:. ") == std::string::npos;
  TEMPERA_CHECK(named, "'", entry.name,
                "' is no name for a temperature method; letters, digits and dashes expected");
  TEMPERA_CHECK(entry.make && !entry.formula.empty() && !entry.help.empty(), "the method '",
                entry.name, "' lacks its formula, its help or the function that makes it");
  for (const MethodEntry& known : entries())
    TEMPERA_CHECK(known.name != entry.name, "there is a temperature method '", entry.name,
                  "' already; choose another name");
  TEMPERA_CHECK(entries().size() < kMostMethods, "there are ", kMostMethods,
                " temperature methods already, and no room for '", entry.name, "'");
  entries().push_back(std::move(entry));
}

const MethodEntry& find_method(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& entry : method_registry()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw UsageError(concat("there is no temperature method '", name,
                          "' (`tempera methods` lists them)", did_you_mean(name, names)));
}

std::vector<std::string> split_methods(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(",+", begin), text.size());
    auto name = text.substr(begin, end - begin);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    names.push_back(find_method(name).name);
    if (std::ranges::count(names, names.back()) > 1) {
      throw UsageError(concat("'", text, "' names the method '", names.back(), "' twice"));
    }
    begin = end + 1;
  }
  return names;
}

std::vector<config::Declaration> method_declarations(std::string_view text, Origin origin) {
  std::vector<config::Declaration> declarations;
  for (const auto& option : part_options(text)) {
    auto declaration = *option.declaration;
    const auto& loaded = option.part->loaded;
    const auto other = loaded.find(declaration.name);
    if (origin == Origin::kLoaded && other != loaded.end()) declaration.value = other->second;
    declaration.name = option.name;
    declarations.push_back(std::move(declaration));
  }
  return declarations;
}

std::vector<MethodSpec> method_specs(std::string_view text, const MethodOptions& given,
                                     Origin origin) {
  const auto values =
      resolve_options(std::string(text), method_declarations(text, origin), given, {});
  std::vector<MethodSpec> specs;
  for (const auto& name : split_methods(text)) specs.push_back({name, {}});
  for (const auto& option : part_options(text)) {
    const auto spec = std::ranges::find(specs, option.part->name, &MethodSpec::name);
    spec->options[option.declaration->name] = values.at(option.name);
  }
  return specs;
}

std::shared_ptr<Method> make_method(const std::vector<MethodSpec>& specs, const LayerShape& shape) {
  TEMPERA_CHECK(!specs.empty(), "a layer without a temperature has the method 'softmax', not none");
  check_shape(shape);
  std::vector<MethodSpec> full;
  std::vector<std::shared_ptr<Method>> parts;
  for (const auto& spec : specs) {
    const MethodEntry& entry = find_method(spec.name);
    full.push_back({spec.name, resolve_options(spec.name, entry.options, spec.options, {})});
    parts.push_back(entry.make(shape, full.back().options));
    parts.back()->set_specs({full.back()});
  }
  if (parts.size() == 1) return parts.front();
  auto product = std::make_shared<Product>(shape, std::move(parts));
  product->set_specs(std::move(full));
  return product;
}

}  // namespace tempera
