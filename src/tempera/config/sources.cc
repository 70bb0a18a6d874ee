#include "tempera/config/sources.h"

#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/files.h"

namespace tempera::config {
namespace {

constexpr int kMaxDepth = 32;
constexpr uint64_t kMaxFile = 16U << 20;

Raw to_raw(const nlohmann::ordered_json& node, std::string_view name, std::string_view origin) {
  using Type = nlohmann::ordered_json::value_t;
  switch (node.type()) {
    case Type::null:
      return {};
    case Type::boolean:
      return {node.get<bool>()};
    case Type::number_unsigned:
      if (node.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) break;
      return {node.get<int64_t>()};
    case Type::number_integer:
      return {node.get<int64_t>()};
    case Type::number_float:
      return {node.get<double>()};
    case Type::string:
      return {node.get<std::string>()};
    case Type::array: {
      std::vector<Raw> elements;
      for (const auto& element : node) {
        if (element.is_structured())
          throw UsageError(concat("key ", name, " in ", origin, ": a list holds values only"));
        elements.push_back(to_raw(element, name, origin));
      }
      return {std::move(elements)};
    }
    default:
      break;
  }
  throw UsageError(concat("key ", name, " in ", origin, ": no option takes such a value"));
}

void flatten(const nlohmann::ordered_json& object, const std::string& prefix, int depth,
             std::string_view origin, Sources::Layer& layer) {
  if (depth > kMaxDepth)
    throw UsageError(concat(origin, ": objects are nested more than ", kMaxDepth, " deep"));
  for (const auto& [key, node] : object.items()) {
    const std::string name = prefix + key;
    if (node.is_object() && !node.empty()) {
      flatten(node, name + ".", depth + 1, origin, layer);
      continue;
    }
    Raw raw = node.is_object() ? Raw{Raw::EmptyTable{}} : to_raw(node, name, origin);
    if (!layer.emplace(name, Given{std::move(raw), std::string(origin)}).second)
      throw UsageError(concat("key ", name, " is twice in ", origin));
  }
}

// Converts what a file holds. A whole number may stand for a real one; nothing else is converted.
class Converter {
 public:
  Converter(Kind kind, bool optional) : kind_(kind), optional_(optional) {}

  std::optional<Value> operator()(std::monostate) const {
    return optional_ ? std::optional<Value>(std::in_place) : std::nullopt;
  }
  std::optional<Value> operator()(Raw::EmptyTable) const { return std::nullopt; }
  std::optional<Value> operator()(const std::vector<Raw>& list) const {
    switch (kind_) {
      case Kind::kIntList:
        return elements<int64_t>(list);
      case Kind::kRealList:
        return elements<double>(list);
      case Kind::kTextList:
        return elements<std::string>(list);
      default:
        return std::nullopt;
    }
  }
  template <class T>
  std::optional<Value> operator()(const T& scalar) const {
    if (kind_ == kind_of(Value(scalar))) return Value(scalar);
    if constexpr (std::is_same_v<T, int64_t>)
      if (kind_ == Kind::kReal) return Value(static_cast<double>(scalar));
    return std::nullopt;
  }

 private:
  template <class T>
  static std::optional<Value> elements(const std::vector<Raw>& list) {
    std::vector<T> result;
    const Converter convert_one(kind_of(Value(T{})), /*optional=*/false);
    for (const Raw& raw : list) {
      const auto value = std::visit(convert_one, raw.value);
      if (!value) return std::nullopt;
      result.push_back(std::get<T>(*value));
    }
    return Value(std::move(result));
  }

  Kind kind_;
  bool optional_;
};

struct RawWriter {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(Raw::EmptyTable) const { return "a table"; }
  std::string operator()(const std::vector<Raw>& list) const {
    std::string text = "[";
    for (size_t i = 0; i < list.size(); ++i)
      text += (i ? ", " : "") + std::visit(*this, list[i].value);
    return text + "]";
  }
  template <class T>
  std::string operator()(const T& scalar) const {
    return toml_text(Value(scalar));
  }
};

}  // namespace

void Sources::add_toml_file(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMaxFile);
  } catch (const Error& error) {
    throw UsageError(concat("--config: ", error.what()));
  }
  add_toml(text, path);
}

void Sources::add_json(const nlohmann::ordered_json& object, std::string_view origin) {
  if (!object.is_object()) throw UsageError(concat(origin, ": a JSON object expected"));
  Layer layer;
  flatten(object, "", 0, origin, layer);
  add(std::move(layer));
}

const Given* Sources::find(std::string_view name, std::string_view alias) const {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    if (const auto found = layer->find(name); found != layer->end()) return &found->second;
    if (alias.empty()) continue;
    // The alias of a group's main option is also the group's own name, which may be an empty table.
    if (const auto found = layer->find(alias); found != layer->end()) {
      const Raw* raw = std::get_if<Raw>(&found->second.value);
      if (!raw || !std::holds_alternative<Raw::EmptyTable>(raw->value)) return &found->second;
    }
  }
  return nullptr;
}

Value convert(const Given& given, std::string_view name, Kind kind, bool optional,
              const Domain& domain) {
  if (const std::string* text = std::get_if<std::string>(&given.value))
    return parse_text(concat("--", name), *text, kind, domain);
  const std::string what = concat("key ", name, " in ", given.origin);
  const Raw& raw = std::get<Raw>(given.value);
  if (const std::string* text = std::get_if<std::string>(&raw.value))
    check_domain(what, Value(*text), Domain{});
  const auto value = std::visit(Converter(kind, optional), raw.value);
  if (!value)
    throw UsageError(concat(what, ": ", std::visit(RawWriter{}, raw.value), " given, ",
                            expectation(kind, domain), " expected"));
  check_domain(what, *value, domain);
  return *value;
}

}  // namespace tempera::config
