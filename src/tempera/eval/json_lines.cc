#include "tempera/eval/json_lines.h"

#include <charconv>

#include "tempera/base/files.h"
#include "tempera/data/text.h"
#include "tempera/io/json.h"

namespace tempera::eval {
namespace {

constexpr uint64_t kLargestFile = uint64_t{4} << 30;

}  // namespace

JsonLine::JsonLine(nlohmann::json object, std::string where)
    : object_(std::move(object)), where_(std::move(where)) {
  if (!object_.is_object())
    fail("a JSON ", object_.type_name(), "; expected an object on each line");
}

const nlohmann::json* JsonLine::find(std::string_view name) const {
  const nlohmann::json* at = &object_;
  for (;;) {
    const size_t dot = name.find('.');
    if (!at->is_object()) return nullptr;
    const auto found = at->find(std::string(name.substr(0, dot)));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (dot == std::string_view::npos) return at;
    name.remove_prefix(dot + 1);
  }
}

const nlohmann::json& JsonLine::get(std::string_view name) const {
  const auto* found = find(name);
  if (!found) fail("no \"", name, "\"; its fields are: ", names());
  return *found;
}

void JsonLine::fail_type(std::string_view name, const char* wanted) const {
  fail("\"", name, "\" is a JSON ", get(name).type_name(), ", not ", wanted);
}

const std::string& JsonLine::text(std::string_view name) const {
  const auto& value = get(name);
  if (!value.is_string()) fail_type(name, "a string");
  return value.get_ref<const std::string&>();
}

std::vector<std::string> JsonLine::texts(std::string_view name) const {
  const auto& list = get(name);
  if (!list.is_array()) fail_type(name, "a list of strings");
  std::vector<std::string> texts;
  for (const auto& item : list) {
    if (!item.is_string()) fail("\"", name, "\" holds a JSON ", item.type_name(), ", not strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

int64_t JsonLine::number(std::string_view name) const {
  const auto& value = get(name);
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) fail_type(name, "a whole number");
  const auto& digits = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size())
    fail("\"", name, "\" is \"", digits, "\", not a whole number");
  return number;
}

size_t JsonLine::index(std::string_view name, size_t count) const {
  const int64_t value = number(name);
  if (value < 0 || static_cast<uint64_t>(value) >= count)
    fail("\"", name, "\" is ", value, ", and there are ", count, " choices, counted from 0");
  return static_cast<size_t>(value);
}

std::string JsonLine::names() const {
  std::string names;
  for (const auto& [name, value] : object_.items()) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

void for_each_line(const std::filesystem::path& file, int64_t limit,
                   const std::function<void(const JsonLine&)>& take) {
  data::check_readable_file(file);
  const std::string bytes = read_file(file, kLargestFile);
  std::string_view left = bytes;
  int64_t number = 0, taken = 0;
  while (!left.empty() && (limit == 0 || taken < limit)) {
    const size_t end = left.find('\n');
    const auto line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto where = concat("'", file.string(), "' line ", number);
    take(JsonLine(io::parse_json(line, where), where));
    ++taken;
  }
  TEMPERA_CHECK(taken > 0, "'", file.string(), "' has no example in it");
}

}  // namespace tempera::eval
