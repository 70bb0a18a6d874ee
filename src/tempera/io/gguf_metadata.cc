#include "tempera/io/gguf_metadata.h"

#include <array>
#include <concepts>
#include <optional>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera::io {
namespace {

// By the format's numbers.
constexpr std::array<std::string_view, 13> kTypeNames{
    "uint8",   "int8", "uint16", "int16",  "uint32", "int32",  "float32",
    "boolean", "text", "array",  "uint64", "int64",  "float64"};
static_assert(std::variant_size_v<GgufValue> == kTypeNames.size());
static_assert(std::is_same_v<std::variant_alternative_t<kGgufArrayIndex, GgufValue>, GgufArray>);
static_assert(std::variant_size_v<GgufArray> + 1 == kTypeNames.size());

template <class T>
constexpr bool kIsInteger = std::integral<T> && !std::same_as<T, bool>;

template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;

// A number of the file as a Result; empty when it is of another kind, or too large.
template <class Result, class T>
std::optional<Result> number(const T& value) {
  if constexpr (std::same_as<Result, int64_t> && kIsInteger<T>) {
    if (std::in_range<int64_t>(value)) return static_cast<int64_t>(value);
  } else if constexpr (std::same_as<Result, double> && std::floating_point<T>) {
    return static_cast<double>(value);
  }
  return std::nullopt;
}

template <class Result, class T>
std::optional<std::vector<Result>> numbers(const std::vector<T>& values) {
  constexpr bool kSameKind = std::same_as<Result, int64_t> ? kIsInteger<T> : std::floating_point<T>;
  if constexpr (kSameKind) {
    std::vector<Result> results;
    results.reserve(values.size());
    for (const T& value : values) {
      const auto result = number<Result>(value);
      if (!result) return std::nullopt;
      results.push_back(*result);
    }
    return results;
  }
  return std::nullopt;
}

// What get<T> gives back, as a pointer or as an optional; empty when the value is of another kind.
template <class T>
auto convert(const GgufValue& value) {
  if constexpr (kIsVector<T>) {
    using Item = typename T::value_type;
    const auto* array = std::get_if<GgufArray>(&value);
    if constexpr (std::is_reference_v<GgufResult<T>>) {
      return array ? std::get_if<T>(array) : nullptr;
    } else {
      return array ? std::visit([](const auto& items) { return numbers<Item>(items); }, *array)
                   : std::nullopt;
    }
  } else if constexpr (kIsInteger<T> || std::floating_point<T>) {
    return std::visit([](const auto& held) { return number<T>(held); }, value);
  } else {
    return std::get_if<T>(&value);
  }
}

template <class T>
std::string_view kind() {
  if constexpr (std::same_as<T, bool>) return "boolean";
  if constexpr (std::same_as<T, std::string>) return "text";
  return std::same_as<T, double> ? "float" : "integer of at most 63 bits";
}

template <class T>
std::string expected() {
  if constexpr (kIsVector<T>) return concat("an array of ", kind<typename T::value_type>());
  return concat(kind<T>());
}

}  // namespace

std::string gguf_type_name(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value);
  if (!array) return std::string(kTypeNames[value.index()]);
  const size_t size = std::visit([](const auto& items) { return items.size(); }, *array);
  const size_t item = array->index() + (array->index() >= kGgufArrayIndex ? 1 : 0);
  return concat("array of ", size, " ", kTypeNames[item]);
}

void GgufMetadata::add(std::string key, GgufValue value) {
  TEMPERA_CHECK(index_.emplace(key, entries_.size()).second, where_, ": the metadata key \"", key,
                "\" appears twice");
  entries_.emplace_back(std::move(key), std::move(value));
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
  if (const GgufValue* value = find(key)) return *value;
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.first);
  throw Error(concat(where_, ": no metadata key \"", key, "\"", did_you_mean(key, names)));
}

template <class T>
GgufResult<T> GgufMetadata::get(std::string_view key) const {
  const GgufValue& value = at(key);
  auto result = convert<T>(value);
  TEMPERA_CHECK(result, where_, ": the metadata key \"", key, "\" has the type ",
                gguf_type_name(value), "; ", expected<T>(), " expected");
  return *std::move(result);
}

template int64_t GgufMetadata::get<int64_t>(std::string_view) const;
template double GgufMetadata::get<double>(std::string_view) const;
template bool GgufMetadata::get<bool>(std::string_view) const;
template const std::string& GgufMetadata::get<std::string>(std::string_view) const;
template std::vector<int64_t> GgufMetadata::get<std::vector<int64_t>>(std::string_view) const;
template std::vector<double> GgufMetadata::get<std::vector<double>>(std::string_view) const;
template const std::vector<bool>& GgufMetadata::get<std::vector<bool>>(std::string_view) const;
template const std::vector<std::string>& GgufMetadata::get<std::vector<std::string>>(
    std::string_view) const;

}  // namespace tempera::io
