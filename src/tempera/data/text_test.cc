#include "tempera/data/text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "tempera/base/files.h"
#include "tempera/data/corpus.h"
#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

using Documents = std::vector<std::string>;

Documents documents_of(std::string_view bytes, bool jsonl = false) {
  Documents documents;
  for_each_document(bytes, jsonl, "x",
                    [&](std::string_view text) { documents.emplace_back(text); });
  return documents;
}

std::string error_in(std::string_view bytes, bool jsonl = false) {
  return message_of([&] { documents_of(bytes, jsonl); });
}

void expect_in(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Text, LinesOfEndOfTextSeparateDocuments) {
  EXPECT_EQ(documents_of("one\ntwo\n"), (Documents{"one\ntwo\n"}));
  EXPECT_EQ(documents_of("a\n<|endoftext|>\nb\n<|endoftext|>\n"), (Documents{"a\n", "b\n"}));
  EXPECT_EQ(documents_of("<|endoftext|>\na\r\n<|endoftext|>\r\nb"), (Documents{"a\r\n", "b"}));
  EXPECT_EQ(documents_of("a\n<|endoftext|>\n<|endoftext|>\nb\n<|endoftext|>"),
            (Documents{"a\n", "b\n"}));
  // Not alone on its line: it is text.
  EXPECT_EQ(documents_of("a <|endoftext|>\nb"), (Documents{"a <|endoftext|>\nb"}));
  EXPECT_EQ(documents_of("a\n<|endoftext|> b"), (Documents{"a\n<|endoftext|> b"}));
  EXPECT_EQ(documents_of("<|endoftext|>\n"), Documents{});
}

TEST(Text, JsonlHasATextOnEachLine) {
  EXPECT_EQ(
      documents_of(
          "{\"text\": \"a\\nb\", \"id\": 1}\n\n  \r\n{\"text\":\"\"}\n{\"text\": \"\\u00e9\"}",
          true),
      (Documents{"a\nb", "é"}));
}

TEST(Text, JsonlErrorsNameTheLine) {
  expect_in(error_in("{\"text\": \"a\"}\n\n{\"text\": ", true), "'x' line 3: not JSON");
  expect_in(error_in("[1]\n", true), "line 1: a JSON array");
  expect_in(error_in("{\"txt\": \"a\", \"id\": 2}\n", true),
            "line 1: no \"text\"; its keys are: id, txt");
  expect_in(error_in("{\"text\": 5}\n", true), "\"text\" is a JSON number");
  expect_in(error_in("{\"text\": \"" + std::string(300, 'a') + "\xFF\"}\n", true),
            "line 1: not JSON");
  expect_in(error_in(std::string(100000, '['), true), "line 1: not JSON");
}

TEST(Text, WhatIsNoTextIsRefusedWithAdvice) {
  expect_in(error_in(""), "empty");
  expect_in(error_in(std::string_view("abc\0def", 7)), "NUL byte at offset 3");
  expect_in(error_in(std::string_view("\x1F\x8B\x08\x00\x00", 5)), "gunzip");
  expect_in(error_in(std::string_view("\xFF\xFEh\0i\0", 6)), "iconv -f utf-16");
  expect_in(error_in("caf\xE9 cr\xE8me"), "iconv -f latin1");
  // A stray byte in a long text is kept.
  std::string mostly(2001, 'a');
  mostly[1000] = '\xE9';
  EXPECT_EQ(documents_of(mostly), Documents{mostly});
}

TEST(Text, InvalidUtf8IsCountedByTheStandard) {
  EXPECT_EQ(count_invalid_utf8("plain text that is longer than a word"), 0);
  EXPECT_EQ(count_invalid_utf8("é € 😀 \xF4\x8F\xBF\xBF"), 0);
  EXPECT_EQ(count_invalid_utf8("\xC0\x80"), 2);          // overlong
  EXPECT_EQ(count_invalid_utf8("\xED\xA0\x80"), 3);      // a surrogate
  EXPECT_EQ(count_invalid_utf8("\xF4\x90\x80\x80"), 4);  // above U+10FFFF
  EXPECT_EQ(count_invalid_utf8("abc\xE2\x82"), 2);       // cut
  EXPECT_EQ(count_invalid_utf8("12345678\xFF"), 1);
}

TEST(Text, MissingFilesGiveTheNearestName) {
  const TempFolder folder;
  put(folder.path() / "shakespeare.txt", "to be");
  const auto error = [&](const std::filesystem::path& path) {
    return message_of([&] { check_readable_file(path); });
  };
  expect_in(error(folder.path() / "shakespear.txt"), "'shakespeare.txt'");
  expect_in(error(folder.path() / "none" / "a.txt"), "does not exist");
  expect_in(error(folder.path()), "not a regular file");
  expect_in(error("surely-no-such-file.txt"), "there is no file");
}

TEST(Text, LongDocumentsGoInPiecesAndComeBackWhole) {
  const TempFolder folder;
  std::string text;
  for (int line = 0; text.size() < (size_t{17} << 20); ++line)
    text += "line " + std::to_string(line) + "\n";
  const auto with_lines = put(folder.path() / "lines.txt", text);
  std::string wide;  // no line ends, three bytes a character: pieces must not cut one
  while (wide.size() < (size_t{9} << 20)) wide += "€";
  const auto without_lines = put(folder.path() / "wide.txt", wide);

  // Keeps what it was given, to see where the pieces were cut.
  class Recorder final : public text::Tokenizer {
   public:
    std::string name() const override { return "recorder"; }
    int64_t vocabulary() const override { return 256; }
    text::SpecialTokens special() const override { return {}; }
    bool is_special(int32_t) const override { return false; }
    std::string piece(int32_t id) const override { return bytes.piece(id); }
    std::optional<int32_t> find(std::string_view piece) const override { return bytes.find(piece); }
    void encode_text(std::string_view piece, text::EncodeOptions options,
                     std::vector<int32_t>& ids) const override {
      pieces.emplace_back(piece);
      bytes.encode(piece, ids, options);
    }
    void decode_ids(std::span<const int32_t>, text::SpecialText, std::string&) const override {}
    mutable Documents pieces;
    text::ByteTokenizer bytes;
  };
  for (const auto& [path, whole] : {std::pair{with_lines, text}, std::pair{without_lines, wide}}) {
    const Recorder tokenizer;
    ShardBuilder builder("recorder", 256);
    int64_t last = 0;
    tokenize_file(path, tokenizer, builder,
                  [&](const TextProgress& progress) { last = progress.bytes; });
    EXPECT_GT(tokenizer.pieces.size(), 1U);
    EXPECT_EQ(last, static_cast<int64_t>(whole.size()));
    EXPECT_EQ(builder.documents(), 1);
    EXPECT_EQ(builder.tokens(), static_cast<int64_t>(whole.size()));
    std::string joined;
    for (const auto& piece : tokenizer.pieces) {
      EXPECT_EQ(count_invalid_utf8(piece), 0);
      EXPECT_TRUE(whole == wide || piece.back() == '\n');
      joined += piece;
    }
    EXPECT_TRUE(joined == whole);
  }
}

// Lines and characters that lie across the parts in which a file is read.
TEST(Text, FilesAreReadInPartsAsTheyWouldBeWhole) {
  const TempFolder folder;
  constexpr size_t kPart = size_t{1} << 20;
  for (const size_t at :
       {kPart - 16, kPart - 15, kPart - 14, kPart - 2, kPart - 1, kPart, kPart + 1}) {
    const std::string first = std::string(at - 1, 'a') + "\n", second = "b\xE2\x82\xAC\n";
    const auto path = put(folder.path() / "a.txt", first + "<|endoftext|>\r\n" + second);
    Documents found;
    for_each_document(path, [&](std::string_view document) { found.emplace_back(document); });
    EXPECT_TRUE(found == (Documents{first, second})) << at;
    EXPECT_EQ(read_lines(path).at(2), "b\xE2\x82\xAC") << at;
    EXPECT_EQ(read_lines(path).size(), 3U) << at;
    std::string euros(at % 3, 'x');
    while (euros.size() < 2 * kPart) euros += "\xE2\x82\xAC";
    EXPECT_TRUE(documents_of(euros) == Documents{euros}) << at;
    const std::string text(at, 'c');
    EXPECT_TRUE(documents_of("{\"text\": \"" + text + "\"}\r\n{\"text\": \"d\"}", true) ==
                (Documents{text, "d"}))
        << at;
  }
  expect_in(error_in(std::string(kPart + 5, 'a') + '\0'), "NUL byte at offset 1048581");
  expect_in(error_in(std::string(2 * kPart, '\xE9')), "2097152 of its 2097152 bytes");
}

TEST(Text, AFileThatChangesWhileItIsReadIsRefused) {
  const TempFolder folder;
  const auto path = folder.path() / "a.txt";
  std::string text;
  while (text.size() < size_t{20} << 20) text += "a line of text\n";
  const auto message_when = [&](const std::function<void()>& change) {
    put(path, text);
    bool changed = false;
    return message_of([&] {
      for_each_piece(path, [&](std::string_view, bool) {
        if (!changed) change();
        changed = true;
      });
    });
  };
  const auto append = [&] { std::ofstream(path, std::ios::app) << "more\n"; };
  expect_in(message_when([&] { std::filesystem::resize_file(path, 1000); }),
            "now 1000; wait until");
  expect_in(message_when([&] { std::filesystem::resize_file(path, 0); }),
            "changed while it was read");
  expect_in(message_when(append), "changed while it was read: it had ");
  // Replaced by renaming, as editors do: the old text is read to its end.
  EXPECT_EQ(message_when([&] { write_file(path, "new"); }), "");
}

TEST(Text, WhatCannotBeReadIsSaid) {
  const TempFolder folder;
  const auto file = put(folder.path() / "a.txt", "text");
  expect_in(message_of([&] { check_readable_file(file / "inner.txt"); }), "there is no file");
  expect_in(message_of([&] { read_lines(put(folder.path() / "empty.txt", "")); }), "is empty");
  expect_in(message_of([&] { read_lines(put(folder.path() / "b", std::string_view("a\0b", 3))); }),
            "binary file");
}

// Nothing is forbidden to root, so it becomes somebody else.
TEST(Text, WhatIsForbiddenIsSaid) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  const auto closed = folder.path() / "closed";
  fs::create_directory(closed);
  put(closed / "a.txt", "text");
  const bool root = ::geteuid() == 0;
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(closed, root ? fs::perms::owner_all : fs::perms::none);
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto error = [](const fs::path& path) {
    return message_of([&] { Corpus::open(std::span(&path, 1), nullptr); });
  };
  expect_in(error(closed), "cannot read the folder '" + closed.string() + "': Permission denied");
  expect_in(error(closed / "a.txt"), "Permission denied");
  expect_in(message_of([&] { for_each_document(closed / "a.txt", [](std::string_view) {}); }),
            "Permission denied");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(closed, fs::perms::owner_all);
}

}  // namespace
}  // namespace tempera::data
