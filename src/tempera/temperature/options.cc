#include "tempera/temperature/options.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera {
namespace {

using config::Kind;
using config::Value;

// Checkpoints keep numbers as JSON does: 1 may stand for 1.0, and the other way round.
Value coerced(const std::string& what, const Value& value, const config::Declaration& declaration) {
  const Kind kind = config::kind_of(declaration.value);
  if (const auto* text = std::get_if<std::string>(&value); text && kind != Kind::kText) {
    return config::parse_text(what, *text, kind, declaration.domain);
  }
  Value result = value;
  if (const auto* whole = std::get_if<int64_t>(&value); whole && kind == Kind::kReal) {
    result = static_cast<double>(*whole);
  }
  if (const auto* real = std::get_if<double>(&value);
      real && kind == Kind::kInt && std::abs(*real) < 9e15 && *real == std::floor(*real)) {
    result = static_cast<int64_t>(*real);
  }
  if (config::kind_of(result) != kind) {
    throw UsageError(concat(what, " is ", config::toml_text(value), ", but must be ",
                            config::expectation(kind, declaration.domain)));
  }
  config::check_domain(what, result, declaration.domain);
  return result;
}

template <class T>
const T& get(const MethodOptions& options, const std::string& name) {
  const auto found = options.find(name);
  TEMPERA_CHECK(found != options.end() && std::holds_alternative<T>(found->second),
                "the method's option '", name, "' is missing or of another type");
  return std::get<T>(found->second);
}

}  // namespace

MethodOptions resolve_options(const std::string& owner,
                              const std::vector<config::Declaration>& declarations,
                              const MethodOptions& given, const MethodOptions& defaults) {
  std::vector<std::string> names;
  for (const auto& declaration : declarations) names.push_back(declaration.name);
  for (const auto& [name, value] : given) {
    if (std::ranges::count(names, name) > 0) continue;
    std::string known;
    for (const auto& other : names) known += (known.empty() ? "" : ", ") + other;
    throw UsageError(concat("the temperature method '", owner, "' has no option '", name,
                            "' (it has: ", known.empty() ? "none" : known, ")",
                            did_you_mean(name, names)));
  }
  MethodOptions result;
  for (const auto& declaration : declarations) {
    const auto chosen = given.find(declaration.name);
    const auto other = defaults.find(declaration.name);
    const Value& value = chosen != given.end()     ? chosen->second
                         : other != defaults.end() ? other->second
                                                   : declaration.value;
    result[declaration.name] =
        coerced(concat("the option '", declaration.name, "' of '", owner, "'"), value, declaration);
  }
  return result;
}

double real_option(const MethodOptions& options, const std::string& name) {
  return get<double>(options, name);
}

int64_t int_option(const MethodOptions& options, const std::string& name) {
  return get<int64_t>(options, name);
}

bool flag_option(const MethodOptions& options, const std::string& name) {
  return get<bool>(options, name);
}

const std::string& text_option(const MethodOptions& options, const std::string& name) {
  return get<std::string>(options, name);
}

}  // namespace tempera
