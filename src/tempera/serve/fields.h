#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::serve {

using Json = nlohmann::ordered_json;

// The fields of a request's object. What is absent or null has its default; what has another type
// or is out of range is a Refusal that names the field.
class RequestFields {
 public:
  // Throws Refusal unless the text is a JSON object.
  explicit RequestFields(const std::string& body);

  // Null: there is none.
  const Json* find(const char* name) const;
  bool flag(const char* name, bool otherwise = false) const;
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const;
  double number(const char* name, double otherwise, double least, double most) const;
  std::optional<std::string> text(const char* name) const;
  // A text or a list of texts.
  std::vector<std::string> texts(const char* name) const;
  // The object; null: there is none.
  const Json* object(const char* name) const;

 private:
  Json fields_;
};

// "field: what is wrong", as status 400.
[[noreturn]] void refuse_field(const std::string& name, const std::string& message);
// "a number", as messages name what was given.
std::string kind_of(const Json& value);
// An id of the vocabulary. Throws Refusal for any other value.
int64_t token_id(const std::string& name, const Json& value, int64_t vocabulary);

}  // namespace tempera::serve
