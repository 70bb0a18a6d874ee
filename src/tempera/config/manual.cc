#include "tempera/base/error.h"
#include "tempera/config/help.h"

namespace tempera::config {
namespace {

// Text as troff shows it: a dash is a minus sign there, a dot or quote in front begins a request.
std::string troff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (result.empty() && (c == '.' || c == '\'')) result += "\\&";
    if (c == '-')
      result += "\\-";
    else if (c == '\\')
      result += "\\e";
    else
      result += c;
  }
  return result;
}

std::string term(std::string_view name, std::string_view meaning) {
  return concat(".TP\n.B ", troff(name), "\n", troff(meaning), "\n");
}

std::string verb_part(std::string_view program, const VerbDescription& verb) {
  std::string text = concat(".SH ", troff(verb.name), "\n.B ", troff(usage_text(program, verb)),
                            "\n.PP\n", troff(verb.summary), ".\n");
  for (const auto& [command, meaning] : verb.examples)
    text += concat(".PP\n", troff(meaning), ":\n.PP\n.nf\n.RS\n", troff(command), "\n.RE\n.fi\n");
  for (const Entry& entry : verb.options.entries())
    if (entry.positional) text += term(argument_text(entry), meaning_text(entry, /*all=*/true));
  for (const auto& [section, title] : kSections) {
    std::string options;
    for (const Entry& entry : verb.options.entries())
      if (!entry.positional && entry.section == section)
        options += term(flag_text(entry), meaning_text(entry, /*all=*/true));
    if (!options.empty()) text += concat(".SS ", troff(title), "\n", options);
  }
  return text;
}

}  // namespace

std::string manual_page(std::string_view program, std::string_view version,
                        std::string_view summary, std::span<const VerbDescription> verbs) {
  std::string text = concat(".TH ", program, " 1 \"\" \"", program, " ", version, "\"\n.SH NAME\n",
                            program, " \\- ", troff(summary), "\n.SH SYNOPSIS\n.B ", program,
                            "\n.I verb\n[options]\n.SH VERBS\n");
  for (const VerbDescription& verb : verbs) text += term(verb.name, verb.summary);
  text += ".SH COMMON OPTIONS\n";
  for (const auto& [flag, meaning] : kCommonFlags) text += term(flag, meaning);
  text += concat(".PP\n", troff(kListNote), "\n");
  for (const VerbDescription& verb : verbs) text += verb_part(program, verb);
  return text;
}

}  // namespace tempera::config
