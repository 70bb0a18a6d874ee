#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::eval {

// The object of one line of a jsonl file. Every complaint names the file and the line. A dot leads
// into an object: "choices.text".
class JsonLine {
 public:
  JsonLine(nlohmann::json object, std::string where);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  const nlohmann::json& get(std::string_view name) const;  // throws where there is none
  const std::string& text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  // A whole number, true or false, or digits in a string.
  int64_t number(std::string_view name) const;
  // The same, below `count`.
  size_t index(std::string_view name, size_t count) const;
  std::string names() const;  // "goal, sol1, sol2"

  template <class... Parts>
  [[noreturn]] void fail(Parts&&... parts) const {
    throw Error(concat(where_, ": ", std::forward<Parts>(parts)...));
  }

 private:
  const nlohmann::json* find(std::string_view name) const;
  [[noreturn]] void fail_type(std::string_view name, const char* wanted) const;

  nlohmann::json object_;
  std::string where_;
};

// Calls take(fields) for each line that is not blank, the first `limit` of them (0: all). Throws
// for a file without any.
void for_each_line(const std::filesystem::path& file, int64_t limit,
                   const std::function<void(const JsonLine&)>& take);

}  // namespace tempera::eval
