#include "tempera/text/jinja/template.h"

#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/jinja/eval.h"
#include "tempera/text/jinja/lexer.h"
#include "tempera/text/jinja/parser.h"
#include "tempera/text/unicode.h"

namespace tempera::text {

Template::Template(std::string_view source, std::string name, TemplateLimits limits)
    : source_(source), name_(std::move(name)), limits_(limits) {
  TEMPERA_CHECK(source.size() <= limits.source_bytes, name_, ": a template of ", source.size(),
                " bytes; at most ", limits.source_bytes);
  TEMPERA_CHECK(is_valid_utf8(source), name_, ": the template is not UTF-8");
  try {
    document_ = std::make_shared<const jinja::Document>(jinja::parse_template(source));
  } catch (const jinja::SyntaxFault& fault) {
    throw Error(concat(name_, ", line ", fault.line, ": ", fault.message));
  }
}

Rendered Template::render(const nlohmann::ordered_json& variables,
                          const RenderOptions& options) const {
  TEMPERA_CHECK(variables.is_object(), name_, ": the variables are an object, not of the type ",
                variables.type_name());
  jinja::Evaluator evaluator(limits_, options);
  try {
    return evaluator.run(*document_, variables);
  } catch (const Error& error) {
    throw Error(concat(name_, ", line ", evaluator.line(), ": ", error.what()));
  }
}

}  // namespace tempera::text
