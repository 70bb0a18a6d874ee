#include "tempera/http/target.h"

#include <algorithm>

#include "tempera/text/unicode.h"

namespace tempera::http {
namespace {

constexpr size_t kMostQueryFields = 100;

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

Fields parse_query(std::string_view query) {
  Fields fields;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    if (field.empty()) continue;
    if (fields.size() == kMostQueryFields)
      throw Refusal(400, concat("more than ", kMostQueryFields, " fields in the query"));
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view value = field.substr(std::min(equals + 1, field.size()));
    fields.emplace_back(percent_decode(field.substr(0, equals), /*form=*/true),
                        percent_decode(value, /*form=*/true));
  }
  return fields;
}

}  // namespace

std::string percent_decode(std::string_view text, bool form) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = text.size() - i > 2 ? hex_value(text[i + 1]) : -1;
      const int low = text.size() - i > 2 ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        throw Refusal(400, "a % without two hexadecimal digits in the address");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (form && c == '+') {
      c = ' ';
    }
    decoded += c;
  }
  if (!text::is_valid_utf8(decoded)) throw Refusal(400, "the address is not valid UTF-8");
  if (std::ranges::any_of(decoded, is_control))
    throw Refusal(400, "a control character in the address");
  return decoded;
}

void parse_target(std::string_view target, Request& request) {
  if (target == "*" && request.method == "OPTIONS") {
    request.path = "*";
    return;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!lower_case(target.substr(0, scheme.size())).starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (target.empty()) target = "/";
    break;
  }
  if (!target.starts_with('/') || target.find('#') != std::string_view::npos)
    throw Refusal(400, "a request's target begins with / and has no #");
  const size_t question = std::min(target.find('?'), target.size());
  request.path = percent_decode(target.substr(0, question), /*form=*/false);
  request.query = parse_query(target.substr(std::min(question + 1, target.size())));
}

}  // namespace tempera::http
