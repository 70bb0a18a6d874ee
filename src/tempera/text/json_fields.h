#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tempera::text {

// Reads an object of tokenizer.json that may be hostile: every field has to be of its type, and one
// that is not known is refused by name, because it could change the ids.
class JsonFields {
 public:
  // `where` names the object in messages.
  JsonFields(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  // Null if the field is absent or null.
  const nlohmann::json* find(const char* name) const;
  const nlohmann::json& at(const char* name) const;

  std::string text(const char* name) const;
  std::string text_or(const char* name, std::string fallback) const;
  bool flag_or(const char* name, bool fallback) const;
  int64_t integer(const char* name) const;
  int64_t integer_or(const char* name, int64_t fallback) const;
  const nlohmann::json& array(const char* name) const;

  // Refuses fields that are not among the names ("type" always is).
  void only(std::initializer_list<const char*> names) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace tempera::text
