#include "tempera/text/json_fields.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera::text {

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  TEMPERA_CHECK(object.is_object(), where_, " is ", object.type_name(), "; an object is expected");
}

const nlohmann::json* JsonFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& JsonFields::at(const char* name) const {
  const auto* value = find(name);
  TEMPERA_CHECK(value != nullptr, where_, " has no \"", name, "\"");
  return *value;
}

std::string JsonFields::text(const char* name) const {
  const auto& value = at(name);
  TEMPERA_CHECK(value.is_string(), where_, ": \"", name, "\" is ", value.type_name(),
                "; a string is expected");
  return value.get<std::string>();
}

std::string JsonFields::text_or(const char* name, std::string fallback) const {
  return find(name) == nullptr ? std::move(fallback) : text(name);
}

bool JsonFields::flag_or(const char* name, bool fallback) const {
  const auto* value = find(name);
  if (value == nullptr) return fallback;
  TEMPERA_CHECK(value->is_boolean(), where_, ": \"", name, "\" is ", value->type_name(),
                "; true or false is expected");
  return value->get<bool>();
}

int64_t JsonFields::integer(const char* name) const {
  const auto& value = at(name);
  TEMPERA_CHECK(value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() < uint64_t{1} << 62),
                where_, ": \"", name, "\" is ", value.dump(), "; an integer is expected");
  return value.get<int64_t>();
}

int64_t JsonFields::integer_or(const char* name, int64_t fallback) const {
  return find(name) == nullptr ? fallback : integer(name);
}

const nlohmann::json& JsonFields::array(const char* name) const {
  const auto& value = at(name);
  TEMPERA_CHECK(value.is_array(), where_, ": \"", name, "\" is ", value.type_name(),
                "; a list is expected");
  return value;
}

void JsonFields::only(std::initializer_list<const char*> names) const {
  for (const auto& [key, value] : object_.items()) {
    const bool known = key == "type" || std::any_of(names.begin(), names.end(),
                                                    [&](const char* n) { return key == n; });
    TEMPERA_CHECK(known, where_, " has the field \"", key, "\", which is not known",
                  did_you_mean(key, std::vector<std::string>(names.begin(), names.end())),
                  "; it could change the ids");
  }
}

}  // namespace tempera::text
