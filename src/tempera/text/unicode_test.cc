#include "tempera/text/unicode.h"

#include <gtest/gtest.h>

#include "tempera/text/byte_level.h"

namespace tempera::text {
namespace {

TEST(Unicode, EveryCharacterIsWrittenAndReadBack) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 61) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, code);
    EXPECT_EQ(character_at(text, 1).code, code);
    EXPECT_EQ(last_character(text).code, code);
    EXPECT_EQ(utf8_size(std::string_view(text).substr(1)), text.size() - 1);
    EXPECT_TRUE(is_valid_utf8(text));
  }
}

TEST(Unicode, InvalidBytesBecomeTheReplacementCharacterOneByOne) {
  const std::string replaced = "\xEF\xBF\xBD";
  // Cut off, a continuation alone, overlong, a surrogate, beyond U+10FFFF, bytes that never occur.
  for (const std::string bad : {"\xE2\x82", "\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                "\xFF", "\xE0\x80\x80", "\xF0\x80\x80\x80"}) {
    EXPECT_FALSE(is_valid_utf8("a" + bad + "b"));
    std::string wanted = "a";
    for (size_t i = 0; i < bad.size(); ++i) wanted += replaced;
    EXPECT_EQ(valid_utf8("a" + bad + "b"), wanted + "b");
  }
  const std::string long_ascii(100, 'x');
  EXPECT_TRUE(is_valid_utf8(long_ascii + "\u20ac" + long_ascii));
  EXPECT_FALSE(is_valid_utf8(long_ascii + "\x80" + long_ascii));
}

TEST(Unicode, Classes) {
  for (const char32_t code : {U'a', U'Z', U'\u00e9', U'\u5b57', U'\u00aa', U'\U00010400'})
    EXPECT_EQ(class_of(code), Class::kLetter);
  for (const char32_t code : {U'0', U'\u00b2', U'\u00bd', U'\u2167', U'\U0001D7CE'})
    EXPECT_EQ(class_of(code), Class::kNumber);
  for (const char32_t code : {U' ', U'\t', U'\u0085', U'\u00a0', U'\u3000'})
    EXPECT_EQ(class_of(code), Class::kSpace);
  for (const char32_t code : {U'!', U'\u0301', U'\u180e', U'\u200b', U'\U0001F600', U'\0'})
    EXPECT_EQ(class_of(code), Class::kOther);
}

TEST(Unicode, NormalForms) {
  const auto normal = [](std::string text, NormalForm form) {
    normalize(text, form);
    return text;
  };
  EXPECT_EQ(normal("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(normal("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normal("\uFB01 \u2460", NormalForm::kNfkc), "fi 1");
  EXPECT_EQ(normal("\uFB01\u00e9", NormalForm::kNfkd), "fie\u0301");
  // What the quick check must not pass: singletons, exclusions, jamo, marks in the wrong order.
  EXPECT_EQ(normal("\u212B", NormalForm::kNfc), "\u00C5");
  EXPECT_EQ(normal("\u0958", NormalForm::kNfc), "\u0915\u093C");
  EXPECT_EQ(normal("\u1100\u1161", NormalForm::kNfc), "\uAC00");
  EXPECT_EQ(normal("\u0BC6\u0BBE", NormalForm::kNfc), "\u0BCA");
  EXPECT_EQ(normal("a\u0301\u0323", NormalForm::kNfc), "\u1EA1\u0301");
  const std::string stays = "\u2019quoted\u201d \u00e9 \uAC00";
  EXPECT_EQ(normal(stays, NormalForm::kNfc), stays);
}

TEST(Unicode, LowerCase) {
  std::string text = "\u00C9A\u0130\u03A3";
  lowercase(text);
  EXPECT_EQ(text, "\u00e9ai\u0307\u03c3");
}

TEST(ByteLevel, EveryByteIsAPrintableCharacter) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  std::string text;
  append_byte_level(bytes, text);
  EXPECT_EQ(byte_level_bytes(text), bytes);
  std::string blank;
  append_byte_level(" \n!", blank);
  EXPECT_EQ(blank, "\u0120\u010A!");
  EXPECT_FALSE(byte_level_bytes("a b"));
  EXPECT_FALSE(byte_level_bytes("\u5b57"));
}

}  // namespace
}  // namespace tempera::text
