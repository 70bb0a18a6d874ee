#include "tempera/serve/fields.h"

#include <cmath>

#include "tempera/base/error.h"
#include "tempera/http/message.h"
#include "tempera/io/json.h"

namespace tempera::serve {
namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostKeys = 4096;

Json parse(const std::string& body) {
  try {
    return io::parse_ordered_json(body, "the request", kMostDepth, kMostKeys);
  } catch (const Error& error) {
    throw http::Refusal(400, error.what());
  }
}

}  // namespace

void refuse_field(const std::string& name, const std::string& message) {
  throw http::Refusal(400, name + ": " + message, name);
}

std::string kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return "the number " + value.dump();
  if (value.is_string()) return "a text";
  return value.is_array() ? "a list" : "an object";
}

int64_t token_id(const std::string& name, const Json& value, int64_t vocabulary) {
  const bool fits = value.is_number_integer() && value >= 0 && value < vocabulary;
  if (!fits)
    refuse_field(name,
                 concat(kind_of(value), " given, ids of tokens expected: 0 to ", vocabulary - 1));
  return value.get<int64_t>();
}

RequestFields::RequestFields(const std::string& body) : fields_(parse(body)) {
  if (!fields_.is_object())
    throw http::Refusal(400, kind_of(fields_) + " given, a JSON object expected");
}

const Json* RequestFields::find(const char* name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() || found->is_null() ? nullptr : &*found;
}

bool RequestFields::flag(const char* name, bool otherwise) const {
  const Json* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) refuse_field(name, kind_of(*value) + " given, true or false expected");
  return value->get<bool>();
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t least, int64_t most) const {
  const Json* value = find(name);
  if (!value) return {};
  const bool fits = value->is_number_integer() && *value >= least && *value <= most;
  if (!fits)
    refuse_field(name, concat(kind_of(*value), " given, a whole number from ", least, " to ", most,
                              " expected"));
  return value->get<int64_t>();
}

double RequestFields::number(const char* name, double otherwise, double least, double most) const {
  const Json* value = find(name);
  if (!value) return otherwise;
  const double given = value->is_number() ? value->get<double>() : std::nan("");
  if (!(given >= least && given <= most))
    refuse_field(
        name, concat(kind_of(*value), " given, a number from ", least, " to ", most, " expected"));
  return given;
}

std::optional<std::string> RequestFields::text(const char* name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_string()) refuse_field(name, kind_of(*value) + " given, a text expected");
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::texts(const char* name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array())
    refuse_field(name, kind_of(*value) + " given, a text or a list of texts expected");
  std::vector<std::string> list;
  for (const auto& item : *value) {
    if (!item.is_string())
      refuse_field(name, "a list with " + kind_of(item) + " given, texts expected");
    list.push_back(item.get<std::string>());
  }
  return list;
}

const Json* RequestFields::object(const char* name) const {
  const Json* value = find(name);
  if (value && !value->is_object())
    refuse_field(name, kind_of(*value) + " given, an object expected");
  return value;
}

}  // namespace tempera::serve
