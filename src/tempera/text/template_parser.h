#pragma once

#include <string_view>

#include "tempera/text/template_ast.h"

namespace tempera::text::jinja {

// Throws SyntaxFault (template_lexer.h).
Document parse_template(std::string_view source);

}  // namespace tempera::text::jinja
