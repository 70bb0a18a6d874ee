#include "tempera/text/scanner.h"

#include "tempera/text/unicode.h"

namespace tempera::text {

const std::string kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

struct Seen {
  Class kind = Class::kOther;
  size_t size = 0;
};

Seen see(std::string_view text, size_t at) {
  const Character c = character_at(text, at);
  return {class_of(c.code), c.size};
}

size_t run(std::string_view text, size_t at, Class kind) {
  while (at < text.size()) {
    const Seen seen = see(text, at);
    if (seen.kind != kind) break;
    at += seen.size;
  }
  return at;
}

// The size of 's, 't, 're, 've, 'm, 'll or 'd at the apostrophe, or 0.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      break;
  }
  // The long s is an s in any case.
  return any_case && text.substr(at + 1).starts_with("\xC5\xBF") ? 3 : 0;
}

// \s+(?!\S)|\s+ at white space: all of it at the end of the text, else all but its last character,
// which belongs to the word behind.
size_t spaces(std::string_view text, size_t at, size_t end) {
  if (end == text.size()) return end;
  const size_t last = end - last_character(text.substr(0, end)).size;
  return last > at ? last : end;
}

size_t scan_cased(std::string_view text, size_t at, size_t digits) {
  const char c = text[at];
  if (c == '\'')
    if (const size_t size = contraction(text, at, /*any_case=*/true)) return at + size;
  const Seen first = see(text, at);
  const size_t behind = at + first.size;
  if (first.kind == Class::kLetter) return run(text, behind, Class::kLetter);
  if (first.kind == Class::kNumber) {
    size_t end = behind;
    for (size_t count = 1; count < digits && end < text.size(); ++count) {
      const Seen next = see(text, end);
      if (next.kind != Class::kNumber) break;
      end += next.size;
    }
    return end;
  }
  const Seen next = behind < text.size() ? see(text, behind) : Seen{Class::kSpace, 0};
  if (next.kind == Class::kLetter && !is_line_end(c)) return run(text, behind, Class::kLetter);
  if (first.kind == Class::kOther || (c == ' ' && next.kind == Class::kOther)) {
    size_t end = run(text, behind, Class::kOther);
    while (end < text.size() && is_line_end(text[end])) ++end;
    return end;
  }
  const size_t end = run(text, at, Class::kSpace);
  for (size_t line = end; line > at; --line)
    if (is_line_end(text[line - 1])) return line;
  return spaces(text, at, end);
}

}  // namespace

size_t scan_gpt2(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == '\'')
    if (const size_t size = contraction(text, at, /*any_case=*/false)) return at + size;
  Seen first = see(text, at);
  size_t behind = at + first.size;
  if (c == ' ' && behind < text.size()) {
    const Seen next = see(text, behind);
    if (next.kind != Class::kSpace) {
      first = next;
      behind += next.size;
    }
  }
  if (first.kind != Class::kSpace) return run(text, behind, first.kind);
  return spaces(text, at, run(text, behind, Class::kSpace));
}

size_t scan_llama3(std::string_view text, size_t at) { return scan_cased(text, at, 3); }

size_t scan_qwen2(std::string_view text, size_t at) { return scan_cased(text, at, 1); }

}  // namespace tempera::text
