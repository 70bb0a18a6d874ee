#include "tempera/data/text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/suggest.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::string_view kSeparator = "<|endoftext|>";

// Longer documents go to the tokenizer in pieces, which bounds the memory a file needs.
constexpr size_t kPiece = size_t{8} << 20;

struct KnownFormat {
  std::string_view magic;
  std::string_view advice;
};

constexpr std::array kKnownFormats{
    KnownFormat{"\x1F\x8B"sv, "it is compressed with gzip: unpack it first (gunzip)"},
    KnownFormat{"\x28\xB5\x2F\xFD"sv, "it is compressed with zstd: unpack it first (unzstd)"},
    KnownFormat{"\xFD"
                "7zXZ"sv,
                "it is compressed with xz: unpack it first (unxz)"},
    KnownFormat{"BZh"sv, "it is compressed with bzip2: unpack it first (bunzip2)"},
    KnownFormat{"PK\x03\x04"sv, "it is a zip archive: unpack it first (unzip)"},
    KnownFormat{"PAR1"sv, "it is a Parquet file: write its text column as jsonl first"},
    KnownFormat{"%PDF-"sv, "it is a PDF: take its text out first (pdftotext)"},
    KnownFormat{"TEMPTOK\n"sv, "it is a token shard: give it a name that ends in .tokens"},
    KnownFormat{"\xFF\xFE"sv, "it is UTF-16: convert it first (iconv -f utf-16 -t utf-8)"},
    KnownFormat{"\xFE\xFF"sv, "it is UTF-16: convert it first (iconv -f utf-16 -t utf-8)"},
};

void check_text(std::string_view bytes, const std::string& origin) {
  TEMPERA_CHECK(!bytes.empty(), "'", origin, "' is empty; give a file with text in it");
  const size_t nul = bytes.find('\0');
  const int64_t invalid = count_invalid_utf8(bytes);
  const bool other_encoding =
      static_cast<double>(invalid) > 0.01 * static_cast<double>(bytes.size());
  if (nul == std::string_view::npos && !other_encoding) return;
  for (const auto& [magic, advice] : kKnownFormats)
    TEMPERA_CHECK(!bytes.starts_with(magic), "'", origin, "' is not a text file: ", advice);
  TEMPERA_CHECK(nul == std::string_view::npos, "'", origin,
                "' is a binary file, not text: it has a NUL byte at offset ", nul,
                "; give UTF-8 text, or jsonl with a \"text\" on each line");
  throw Error(
      concat("'", origin, "' is not UTF-8 text: ", invalid, " of its ", bytes.size(),
             " bytes are no valid UTF-8; if it is text in another encoding, convert it first "
             "(iconv -f latin1 -t utf-8)"));
}

// Takes the first line, without its end, off the text.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void split_plain(std::string_view text, FunctionRef<void(std::string_view)> take) {
  size_t begin = 0;
  for (size_t from = 0;;) {
    const size_t found = text.find(kSeparator, from);
    if (found == std::string_view::npos) break;
    const size_t behind = found + kSeparator.size();
    std::string_view rest = text.substr(behind);
    const size_t left = rest.size();
    const bool alone = (found == 0 || text[found - 1] == '\n') && take_line(rest).empty();
    from = alone ? behind + left - rest.size() : behind;
    if (!alone) continue;
    if (found > begin) take(text.substr(begin, found - begin));
    begin = from;
  }
  if (begin < text.size()) take(text.substr(begin));
}

std::string text_of_line(std::string_view line, const std::string& origin, int64_t number) {
  constexpr const char* kExpected = "; expected one object a line, such as {\"text\": \"...\"}";
  const auto where = concat("'", origin, "' line ", number, ": ");
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw Error(concat(where, "not JSON (", error.what(), ")", kExpected));
  }
  TEMPERA_CHECK(value.is_object(), where, "a JSON ", value.type_name(), kExpected);
  const auto text = value.find("text");
  if (text == value.end()) {
    std::string keys;
    for (const auto& [key, unused] : value.items()) keys += (keys.empty() ? "" : ", ") + key;
    throw Error(
        concat(where, "no \"text\"; its keys are: ", keys.empty() ? "none" : keys, kExpected));
  }
  TEMPERA_CHECK(text->is_string(), where, "\"text\" is a JSON ", text->type_name(),
                ", not a string", kExpected);
  return std::move(text->get_ref<std::string&>());
}

// The next piece of a document: all of it, or up to a line's end that words follow (where no
// tokenizer joins across), or else up to the start of a UTF-8 character.
std::string_view take_piece(std::string_view& text) {
  size_t size = text.size();
  if (size > kPiece) {
    size = kPiece;
    while (size > kPiece / 2 && !(text[size - 1] == '\n' && !std::strchr(" \t\r\n", text[size])))
      --size;
    if (size == kPiece / 2) {
      size = kPiece;
      while (size > kPiece - 4 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
    }
  }
  const std::string_view piece = text.substr(0, size);
  text.remove_prefix(size);
  return piece;
}

bool is_jsonl(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

// Bytes of the well-formed sequence at the front, 0 if there is none (table 3-7 of the Unicode
// standard).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto within = [&](size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return within(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return within(1, low, high) && within(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return within(1, low, high) && within(2, 0x80, 0xBF) && within(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace

int64_t count_invalid_utf8(std::string_view text) {
  int64_t invalid = 0;
  while (!text.empty()) {
    uint64_t word = 0;
    if (text.size() >= 8) {
      std::memcpy(&word, text.data(), 8);
      if ((word & 0x8080808080808080ULL) == 0) {
        text.remove_prefix(8);
        continue;
      }
    }
    const size_t length = utf8_length(text);
    invalid += length == 0 ? 1 : 0;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return invalid;
}

void check_readable_file(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    TEMPERA_CHECK(fs::is_directory(folder, code), "there is no file '", path.string(),
                  "': its folder '", folder.string(), "' does not exist");
    std::vector<std::string> names;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
      names.push_back(at->path().filename().string());
    throw Error(concat("there is no file '", path.string(), "'",
                       did_you_mean(path.filename().string(), names)));
  }
  TEMPERA_CHECK(status.type() == fs::file_type::regular, "'", path.string(),
                "' is not a regular file; give a text file, a jsonl file or token shards");
}

void for_each_document(std::string_view bytes, bool jsonl, const std::string& origin,
                       FunctionRef<void(std::string_view)> take) {
  check_text(bytes, origin);
  if (!jsonl) return split_plain(bytes, take);
  for (int64_t number = 1; !bytes.empty(); ++number) {
    const std::string_view line = take_line(bytes);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const std::string text = text_of_line(line, origin, number);
    if (!text.empty()) take(text);
  }
}

void for_each_document(const fs::path& path, FunctionRef<void(std::string_view)> take) {
  check_readable_file(path);
  const MappedFile file(path);
  const auto bytes = file.bytes();
  for_each_document({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, is_jsonl(path),
                    path.string(), take);
}

std::vector<std::string> read_lines(const fs::path& path) {
  check_readable_file(path);
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  check_text(text, path.string());
  return lines_of(text);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) lines.emplace_back(take_line(text));
  return lines;
}

void tokenize_file(const fs::path& path, const text::Tokenizer& tokenizer, ShardBuilder& builder,
                   FunctionRef<void(const TextProgress&)> report) {
  std::vector<int32_t> ids;
  int64_t done = 0;
  for_each_document(path, [&](std::string_view document) {
    while (!document.empty()) {
      const std::string_view piece = take_piece(document);
      ids.clear();
      tokenizer.encode(piece, ids);
      const bool last = document.empty();
      if (last && tokenizer.special().end_of_text) ids.push_back(*tokenizer.special().end_of_text);
      builder.append(ids);
      if (last) builder.end_document();
      done += static_cast<int64_t>(piece.size());
      report({.bytes = done, .tokens = static_cast<int64_t>(ids.size()), .document_ended = last});
    }
  });
}

}  // namespace tempera::data
