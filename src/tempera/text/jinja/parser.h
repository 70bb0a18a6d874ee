#pragma once

#include <string_view>

#include "tempera/text/jinja/ast.h"

namespace tempera::text::jinja {

// Throws SyntaxFault (lexer.h).
Document parse_template(std::string_view source);

}  // namespace tempera::text::jinja
