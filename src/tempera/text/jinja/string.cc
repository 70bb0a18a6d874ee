#include "tempera/text/jinja/string.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "tempera/base/error.h"

namespace tempera::text::jinja {
namespace {

// What str.isspace() takes for one: some control characters too.
constexpr bool is_blank(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

constexpr bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// What repr() shows as itself. Code points that Unicode has not assigned count as printable, since
// which these are depends on the version.
bool is_printable(char32_t c) { return c == ' ' || (!is_blank(c) && !is_control(c)); }

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

void require_ascii(std::string_view text, const char* what) {
  TEMPERA_CHECK(is_ascii(text), what, " of text beyond ASCII is not supported");
}

void append_hex(std::string& out, char32_t value, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 15];
}

// A run of blanks is one separator, and none at the ends.
std::vector<std::string_view> split_blanks(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  const Side outer = from_right ? Side::kRight : Side::kLeft;
  for (text = strip(text, outer); !text.empty(); text = strip(text, outer)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);  // with the blanks at its other end
      break;
    }
    // The word runs to the first blank, or from behind the last.
    size_t begin = 0, end = text.size();
    for (size_t at = 0; at < text.size();) {
      const size_t before = at;
      if (!is_blank(next_code_point(text, at))) continue;
      (from_right ? begin : end) = from_right ? at : before;
      if (!from_right) break;
    }
    parts.push_back(text.substr(begin, end - begin));
    text = from_right ? text.substr(0, begin) : text.substr(end);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

size_t text_length(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    all.push_back(text.substr(begin, at - begin));
  }
  return all;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  std::u32string set;
  for (size_t at = 0; chars && at < chars->size();) set += next_code_point(*chars, at);
  const auto drop = [&](char32_t c) { return chars ? set.find(c) != set.npos : is_blank(c); };
  while (side != Side::kRight && !text.empty()) {
    size_t at = 0;
    if (!drop(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t at = begin;
    if (!drop(next_code_point(text, at))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right) {
  if (!separator) return split_blanks(text, limit, from_right);
  TEMPERA_CHECK(!separator->empty(), "split: the separator is empty");
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == text.npos) break;
    const auto left = text.substr(0, at), right = text.substr(at + separator->size());
    parts.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const char32_t c = next_code_point(text, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : before) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  int64_t done = 0;
  if (from.empty()) {  // before every character, and at the end
    for (const auto character : characters(text)) {
      if (limit < 0 || done++ < limit) out += to;
      out += character;
    }
    if (limit < 0 || done < limit) out += to;
    return out;
  }
  while (limit < 0 || done++ < limit) {
    const size_t at = text.find(from);
    if (at == text.npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string upper(std::string_view text) {
  require_ascii(text, "upper case");
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_upper);
  return out;
}

std::string lower(std::string_view text) {
  constexpr std::string_view kSigma = "\u03a3", kDottedI = "\u0130";
  TEMPERA_CHECK(text.find(kSigma) == text.npos && text.find(kDottedI) == text.npos,
                "lower case of text with a Greek sigma or a dotted I is not supported");
  std::string out(text);
  lowercase(out);
  return out;
}

std::string capitalize(std::string_view text) {
  require_ascii(text, "title case");
  std::string out = lower(text);
  if (!out.empty()) out[0] = to_upper(out[0]);
  return out;
}

std::string title(std::string_view text) {
  require_ascii(text, "title case");
  std::string out = lower(text);
  for (size_t i = 0; i < out.size(); ++i)
    if (i == 0 || !is_letter(out[i - 1])) out[i] = to_upper(out[i]);
  return out;
}

std::string title_words(std::string_view text) {
  require_ascii(text, "title case");
  std::string out = lower(text);
  constexpr std::string_view kOpening = "-({[<";
  for (size_t i = 0; i < out.size(); ++i) {
    const auto before =
        i == 0 ? U' ' : static_cast<char32_t>(static_cast<unsigned char>(out[i - 1]));
    if (is_blank(before) || kOpening.find(static_cast<char>(before)) != kOpening.npos)
      out[i] = to_upper(out[i]);
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string repr(std::string_view text) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(begin, at - begin));
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      append_hex(out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
  }
  return out += quote;
}

std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The fewest digits that read back as the same number, then laid out as Python does.
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  std::string out;
  if (text.front() == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t digits_at = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + digits_at, text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string size = std::to_string(std::abs(exponent));
    return out.append(size.size() < 2 ? "0" : "").append(size);
  }
  if (exponent < 0)
    return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits.append(whole - digits.size(), '0') + ".0";
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

std::string json_quote(std::string_view text, bool ascii_only) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const auto unit = [&](char32_t value) {
      out += "\\u";
      append_hex(out, value, 4);
    };
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t' || c == '\f' || c == '\b') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\f' ? "\\f" : "\\b";
    } else if (c < 0x20 || (ascii_only && c > 0x7e && c < 0x10000)) {
      unit(c);
    } else if (ascii_only && c >= 0x10000) {
      unit(0xd800 + ((c - 0x10000) >> 10));
      unit(0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      out.append(text.substr(begin, at - begin));
    }
  }
  return out += '"';
}

}  // namespace tempera::text::jinja
