#include "tempera/base/shell.h"

namespace tempera {

std::string quoted(const std::string& name) {
  const bool plain =
      !name.empty() && name.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~!{}") == name.npos;
  if (plain) return name;
  std::string inside;
  for (const char c : name) inside += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + inside + "'";
}

}  // namespace tempera
