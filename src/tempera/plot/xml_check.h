#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::plot {

// What is wrong with a document as XML, empty when it is well formed. Knows what our writers use:
// elements, quoted attributes, character references, a doctype. For tests.
inline std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  size_t roots = 0;
  const auto bad_reference = [&](size_t at) {
    for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
      if (text.substr(at).starts_with(known)) return false;
    return true;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&' && bad_reference(i)) return "bare & at " + std::to_string(i);
    if (text[i] == '>') return "bare > at " + std::to_string(i);
    if (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n') return "control character";
    if (text[i] != '<') {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(text[i])))
        return "text outside the root";
      continue;
    }
    size_t end = i + 1;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return "< inside a tag at " + std::to_string(end);
      if (text[end] == '&' && bad_reference(end)) return "bare & at " + std::to_string(end);
    }
    if (end >= text.size()) return "unclosed tag at " + std::to_string(i);
    const std::string_view tag = text.substr(i + 1, end - i - 1);
    i = end;
    if (tag.starts_with("!DOCTYPE")) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1))
        return "closing " + std::string(tag) + " does not match";
      open.pop_back();
      continue;
    }
    if (open.empty() && ++roots > 1) return "two roots";
    if (!tag.ends_with('/')) open.emplace_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() && roots == 1 ? "" : "unclosed elements";
}

}  // namespace tempera::plot
