#include "tempera/io/json.h"

#include <set>
#include <string>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::io {

namespace {

template <class Json>
Json parse(std::string_view text, std::string_view where, int depth, size_t most_keys) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int level, typename Json::parse_event_t event, Json& value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      TEMPERA_CHECK(level < depth, where, ": JSON nested deeper than ", depth, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& name = value.template get_ref<const std::string&>();
      TEMPERA_CHECK(keys.back().insert(name).second, where, ": the key \"", name,
                    "\" appears twice");
      TEMPERA_CHECK(keys.back().size() <= most_keys, where, ": an object with more than ",
                    most_keys, " keys");
    }
    return true;
  };
  // The library takes a zero byte for the end of the text and would ignore what follows.
  TEMPERA_CHECK(text.find('\0') == text.npos, where, ": not valid JSON: it holds a zero byte");
  try {
    return Json::parse(text, watch);
  } catch (const typename Json::exception& error) {
    throw Error(concat(where, ": not valid JSON: ", error.what()));
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where, int depth) {
  return parse<nlohmann::json>(text, where, depth, SIZE_MAX);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, int depth,
                                          size_t most_keys) {
  return parse<nlohmann::ordered_json>(text, where, depth, most_keys);
}

}  // namespace tempera::io
