#include "tempera/data/text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/file_reader.h"
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

// The next bytes of a text, as many as there is room for; 0 at its end.
using Read = FunctionRef<size_t(std::span<char> out)>;

// A text as parts of at most kPart bytes, whose memory is all that it needs.
class TextParts {
 public:
  explicit TextParts(Read read) : read_(read), buffer_(kPart) {}

  // The bytes that are not taken yet: kPart of them, or all that are left.
  std::string_view peek() {
    while (!ended_ && held_ < kPart) {
      if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, held_);
      begin_ = 0;
      const size_t count = read_(std::span(buffer_).subspan(held_));
      held_ += count;
      ended_ = count == 0;
    }
    return {buffer_.data() + begin_, held_};
  }
  void take(size_t count) {
    begin_ += count;
    held_ -= count;
  }
  bool ended() const { return ended_; }

 private:
  static constexpr size_t kPart = size_t{1} << 20;

  Read read_;
  std::vector<char> buffer_;
  size_t begin_ = 0, held_ = 0;
  bool ended_ = false;
};

// How much of a text can be looked at before the rest is known: no character is cut.
size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(4, text.size()); ++back)
    if ((static_cast<unsigned char>(text[text.size() - back]) & 0xC0) != 0x80)
      return text.size() - back;
  return text.size();
}

struct TextFacts {
  uint64_t bytes = 0;
  int64_t invalid = 0;  // bytes of no well-formed UTF-8
  std::optional<uint64_t> nul = {};
  std::string begin = {};
};

TextFacts facts_of(Read read) {
  TextFacts facts;
  TextParts parts(read);
  for (auto text = parts.peek(); !text.empty(); text = parts.peek()) {
    if (!parts.ended() && whole_characters(text) > 0) text = text.substr(0, whole_characters(text));
    if (facts.bytes == 0) facts.begin = text.substr(0, 16);
    const size_t nul = text.find('\0');
    if (!facts.nul && nul != std::string_view::npos) facts.nul = facts.bytes + nul;
    facts.invalid += count_invalid_utf8(text);
    facts.bytes += text.size();
    parts.take(text.size());
  }
  return facts;
}

void check_text(Read read, const std::string& origin) {
  const TextFacts facts = facts_of(read);
  TEMPERA_CHECK(facts.bytes > 0, "'", origin, "' is empty; give a file with text in it");
  const bool other_encoding =
      static_cast<double>(facts.invalid) > 0.01 * static_cast<double>(facts.bytes);
  if (!facts.nul && !other_encoding) return;
  for (const auto& [magic, advice] : kKnownFormats)
    TEMPERA_CHECK(!facts.begin.starts_with(magic), "'", origin, "' is not a text file: ", advice);
  TEMPERA_CHECK(!facts.nul, "'", origin,
                "' is a binary file, not text: it has a NUL byte at offset ", *facts.nul,
                "; give UTF-8 text, or jsonl with a \"text\" on each line");
  throw Error(
      concat("'", origin, "' is not UTF-8 text: ", facts.invalid, " of its ", facts.bytes,
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

// A line, or a part of one that is longer than any part of the text.
struct LinePart {
  std::string_view text;  // with the line's end
  bool begins = false, ends = false;
};

std::string_view without_end(std::string_view line) { return take_line(line); }

void for_each_line(Read read, FunctionRef<void(const LinePart&)> take) {
  TextParts parts(read);
  bool begins = true;
  for (auto text = parts.peek(); !text.empty(); text = parts.peek()) {
    size_t done = 0;
    for (;;) {
      const size_t end = text.find('\n', done);
      if (end == std::string_view::npos) break;
      take({text.substr(done, end + 1 - done), begins, true});
      begins = true;
      done = end + 1;
    }
    // Nothing but a part of a line is left, which may go on behind: it is read again with more, or
    // is all that fits.
    if (done == 0 || parts.ended()) {
      if (done < text.size()) take({text.substr(done), begins, parts.ended()});
      begins = false;
      done = text.size();
    }
    parts.take(done);
  }
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

using TakePiece = FunctionRef<void(std::string_view piece, bool last)>;

void split_plain(Read read, TakePiece take) {
  std::string document;
  const auto end_document = [&] {
    for (std::string_view left = document; !left.empty();) {
      const std::string_view piece = take_piece(left);
      take(piece, left.empty());
    }
    document.clear();
  };
  for_each_line(read, [&](const LinePart& part) {
    if (part.begins && part.ends && without_end(part.text) == kSeparator) return end_document();
    document += part.text;
    while (document.size() > 2 * kPiece) {
      std::string_view left = document;
      take(take_piece(left), false);
      document.erase(0, document.size() - left.size());
    }
  });
  end_document();
}

void split_jsonl(Read read, const std::string& origin, TakePiece take) {
  std::string line;
  int64_t number = 0;
  for_each_line(read, [&](const LinePart& part) {
    if (part.begins) line.clear();
    line += part.text;
    if (!part.ends) return;
    ++number;
    const std::string_view object = without_end(line);
    if (object.find_first_not_of(" \t") == std::string_view::npos) return;
    const std::string text = text_of_line(object, origin, number);
    for (std::string_view left = text; !left.empty();) {
      const std::string_view piece = take_piece(left);
      take(piece, left.empty());
    }
  });
}

// Whole documents out of their pieces.
void join_pieces(FunctionRef<void(TakePiece)> each_piece,
                 FunctionRef<void(std::string_view document)> take) {
  std::string document;
  each_piece([&](std::string_view piece, bool last) {
    if (last && document.empty()) return take(piece);
    document += piece;
    if (!last) return;
    take(document);
    document.clear();
  });
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
  TEMPERA_CHECK(status.type() != fs::file_type::none, "cannot read '", path.string(),
                "': ", code.message());
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
  std::string_view left = bytes;
  const auto read = [&](std::span<char> out) {
    const size_t count = left.copy(out.data(), out.size());
    left.remove_prefix(count);
    return count;
  };
  check_text(read, origin);
  left = bytes;
  join_pieces(
      [&](TakePiece piece) { jsonl ? split_jsonl(read, origin, piece) : split_plain(read, piece); },
      take);
}

void for_each_piece(const fs::path& path, TakePiece take) {
  check_readable_file(path);
  FileReader file(path);
  const auto read = [&](std::span<char> out) { return file.read(out); };
  check_text(read, path.string());
  file.rewind();
  is_jsonl(path) ? split_jsonl(read, path.string(), take) : split_plain(read, take);
}

void for_each_document(const fs::path& path, FunctionRef<void(std::string_view)> take) {
  join_pieces([&](TakePiece piece) { for_each_piece(path, piece); }, take);
}

std::vector<std::string> read_lines(const fs::path& path) {
  check_readable_file(path);
  FileReader file(path);
  const auto read = [&](std::span<char> out) { return file.read(out); };
  check_text(read, path.string());
  file.rewind();
  std::vector<std::string> lines;
  for_each_line(read, [&](const LinePart& part) {
    if (part.begins) lines.emplace_back();
    lines.back() += part.text;
    if (part.ends) lines.back().resize(without_end(lines.back()).size());
  });
  return lines;
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
  for_each_piece(path, [&](std::string_view piece, bool last) {
    ids.clear();
    tokenizer.encode(piece, ids);
    if (last && tokenizer.special().end_of_text) ids.push_back(*tokenizer.special().end_of_text);
    builder.append(ids);
    if (last) builder.end_document();
    done += static_cast<int64_t>(piece.size());
    report({.bytes = done, .tokens = static_cast<int64_t>(ids.size()), .document_ended = last});
  });
}

}  // namespace tempera::data
