#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tempera/base/error.h"

// Results as structs, read and written as JSON by one declaration of their fields.
namespace tempera::study {

using Json = nlohmann::ordered_json;

// A value under the name that it has in the results: a method, a size, a metric.
template <class Value>
struct Named {
  std::string name;
  Value value;
};
// In the order of the results.
template <class Value>
using ByName = std::vector<Named<Value>>;

// The value of that name, made where there is none.
template <class Value>
Value& entry(ByName<Value>& values, std::string_view name) {
  for (auto& [known, value] : values)
    if (known == name) return value;
  return values.emplace_back(std::string(name), Value()).value;
}

// A struct with `static void fields(auto& self, auto&& field)`, which calls field(name, member) for
// every member in the order of the file. Where a member is an empty std::optional or ByName, the
// file has no such field.
template <class T>
concept Record = requires(T& record) { T::fields(record, [](const char*, auto&) {}); };

namespace record {

template <class T>
inline constexpr bool kOptional = false;
template <class T>
inline constexpr bool kOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kByName = false;
template <class T>
inline constexpr bool kByName<ByName<T>> = true;
template <class T>
inline constexpr bool kList = false;
template <class T>
inline constexpr bool kList<std::vector<T>> = !kByName<std::vector<T>>;
template <class T>
inline constexpr bool kPair = false;
template <class A, class B>
inline constexpr bool kPair<std::pair<A, B>> = true;

template <class T>
bool is_left_out(const T& value) {
  if constexpr (kOptional<T>) return !value;
  if constexpr (kByName<T>) return value.empty();
  return false;
}

}  // namespace record

template <class T>
Json as_json(const T& value) {
  if constexpr (Record<const T>) {
    Json json = Json::object();
    T::fields(value, [&](const char* name, const auto& member) {
      if (!record::is_left_out(member)) json[name] = as_json(member);
    });
    return json;
  } else if constexpr (record::kOptional<T>) {
    return as_json(*value);
  } else if constexpr (record::kByName<T>) {
    Json json = Json::object();
    for (const auto& [name, member] : value) json[name] = as_json(member);
    return json;
  } else if constexpr (record::kPair<T>) {
    return Json::array({as_json(value.first), as_json(value.second)});
  } else if constexpr (record::kList<T>) {
    Json json = Json::array();
    for (const auto& member : value) json.push_back(as_json(member));
    return json;
  } else {
    return value;
  }
}

// Throws where the JSON, which may be anybody's, holds something else. (Not "from_json": nlohmann's
// own function of that name is found beside it.) where: a file, then what
// leads to the value in it.
template <class T>
T read_as(const Json& json, const std::string& where) {
  const auto expect = [&](bool fits, const char* what) {
    TEMPERA_CHECK(fits, where, ": ", json.type_name(), " found where ", what, " is expected");
  };
  T value{};
  if constexpr (Record<T>) {
    expect(json.is_object(), "an object");
    T::fields(value, [&]<class Member>(const char* name, Member& member) {
      const auto found = json.find(name);
      if (found != json.end())
        member = read_as<Member>(*found, concat(where, ": ", name));
      else
        TEMPERA_CHECK(record::is_left_out(Member()), where, " has no \"", name, "\"");
    });
  } else if constexpr (record::kOptional<T>) {
    value = read_as<typename T::value_type>(json, where);
  } else if constexpr (record::kByName<T>) {
    expect(json.is_object(), "an object");
    for (const auto& [name, member] : json.items())
      value.push_back(
          {name, read_as<decltype(T::value_type::value)>(member, concat(where, ": ", name))});
  } else if constexpr (record::kPair<T>) {
    expect(json.is_array() && json.size() == 2, "a pair");
    value = {read_as<typename T::first_type>(json[0], where),
             read_as<typename T::second_type>(json[1], where)};
  } else if constexpr (record::kList<T>) {
    expect(json.is_array(), "an array");
    for (const Json& member : json) value.push_back(read_as<typename T::value_type>(member, where));
  } else if constexpr (std::is_same_v<T, double>) {
    // A number that is not finite is null in JSON.
    expect(json.is_number() || json.is_null(), "a number");
    value = json.is_null() ? std::nan("") : json.get<double>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    expect(json.is_number_integer(), "a whole number");
    value = json.get<int64_t>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    expect(json.is_string(), "a text");
    value = json.get<std::string>();
  } else {
    static_assert(std::is_same_v<T, Json>);
    value = json;
  }
  return value;
}

}  // namespace tempera::study
