#include "tempera/config/value.h"

#include <gtest/gtest.h>

#include <limits>

#include "tempera/base/error.h"

namespace tempera::config {
namespace {

Value parse(std::string_view text, Kind kind, const Domain& domain = {}) {
  return parse_text("--x", text, kind, domain);
}

std::string message_of(std::string_view text, Kind kind, const Domain& domain = {}) {
  try {
    parse(text, kind, domain);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseText, ReadsEveryKind) {
  EXPECT_EQ(parse("true", Kind::kBool), Value(true));
  EXPECT_EQ(parse("false", Kind::kBool), Value(false));
  EXPECT_EQ(parse("-9223372036854775808", Kind::kInt), Value(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(parse("+5", Kind::kInt), Value(int64_t{5}));
  EXPECT_EQ(parse("2.5e-3", Kind::kReal), Value(2.5e-3));
  EXPECT_EQ(parse("7", Kind::kReal), Value(7.0));
  EXPECT_EQ(parse("", Kind::kText), Value(std::string{}));
  EXPECT_EQ(parse("1,-2,3", Kind::kIntList), Value(std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(parse("1,.5", Kind::kRealList), Value(std::vector<double>{1, 0.5}));
  EXPECT_EQ(parse("", Kind::kIntList), Value(std::vector<int64_t>{}));
  EXPECT_EQ(parse("a,b\\,c,\\\\", Kind::kTextList),
            Value(std::vector<std::string>{"a", "b,c", "\\"}));
  EXPECT_EQ(parse("a,", Kind::kTextList), Value(std::vector<std::string>{"a", ""}));
}

TEST(ParseText, NamesOptionValueAndExpectation) {
  EXPECT_EQ(message_of("abc", Kind::kInt, range(1, 10)),
            "--x: \"abc\" given, an integer, 1 to 10, expected");
  EXPECT_EQ(message_of("0", Kind::kInt, range(1, 10)),
            "--x: 0 given, an integer, 1 to 10, expected");
  EXPECT_EQ(message_of("1.5", Kind::kInt), "--x: \"1.5\" given, an integer expected");
  EXPECT_EQ(message_of("0", Kind::kReal, above(0)), "--x: 0.0 given, a number, above 0, expected");
  EXPECT_EQ(message_of("1.5", Kind::kReal, above_to(0, 1)),
            "--x: 1.5 given, a number, above 0, up to 1, expected");
  EXPECT_EQ(message_of("1,2,-3", Kind::kIntList, at_least(0)),
            "--x: -3 given, a list of integers, at least 0, expected");
  EXPECT_EQ(message_of("cudo", Kind::kText, choices({"cpu", "cuda"})),
            "--x: \"cudo\" given, one of cpu, cuda expected; did you mean 'cuda'?");
  EXPECT_EQ(message_of("a,d", Kind::kTextList, choices({"a", "b"})),
            "--x: \"d\" given, a list of a, b expected; did you mean 'a'?");
  EXPECT_EQ(message_of("yes", Kind::kBool), "--x: \"yes\" given, true or false expected");
}

TEST(ParseText, RefusesWhatIsNoNumber) {
  for (const char* text : {"", " 1", "1 ", "0x10", "1_000", "9223372036854775808", "--1", "+-1"})
    EXPECT_THROW(parse(text, Kind::kInt), UsageError) << text;
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "1,5", "."})
    EXPECT_THROW(parse(text, Kind::kReal), UsageError) << text;
  EXPECT_THROW(parse("1,,2", Kind::kIntList), UsageError);
  EXPECT_THROW(parse("1,nan", Kind::kRealList), UsageError);
}

TEST(ParseText, RefusesBytesThatAreNoText) {
  EXPECT_THROW(parse("\xff", Kind::kText), UsageError);
  EXPECT_THROW(parse(std::string_view("a\0b", 3), Kind::kText), UsageError);
  EXPECT_THROW(parse("a,\xc3", Kind::kTextList), UsageError);
}

TEST(CheckDomain, AcceptsBothEnds) {
  for (const double number : {0.0, 0.5, 1.0})
    EXPECT_NO_THROW(check_domain("x", Value(number), range(0, 1)));
  EXPECT_NO_THROW(check_domain("x", Value(1.0), above_to(0, 1)));
  EXPECT_THROW(check_domain("x", Value(0.0), above_to(0, 1)), UsageError);
  EXPECT_THROW(check_domain("x", Value(-0.1), range(0, 1)), UsageError);
  EXPECT_THROW(check_domain("x", Value(1.1), range(0, 1)), UsageError);
  EXPECT_NO_THROW(check_domain("x", Value{}, range(0, 1)));
}

TEST(Texts, AreReadBack) {
  const std::vector<Value> values = {
      Value(true),
      Value(int64_t{-3}),
      Value(0.1),
      Value(1e300),
      Value(5e-324),
      Value(100.0),
      Value(std::string("a b")),
      Value(std::vector<int64_t>{1, 2}),
      Value(std::vector<double>{0.1, 3}),
      Value(std::vector<std::string>{"a,b", "c\\", "\xc3\xa4"}),
  };
  for (const Value& value : values)
    EXPECT_EQ(parse(plain_text(value), kind_of(value)), value) << plain_text(value);
}

TEST(Texts, AreToml) {
  EXPECT_EQ(toml_text(Value(100.0)), "100.0");
  EXPECT_EQ(toml_text(Value(1e22)), "1e+22");
  EXPECT_EQ(toml_text(Value(std::string("a\"\\\n\x01"))), R"("a\"\\\n\u0001")");
  EXPECT_EQ(toml_text(Value(std::vector<std::string>{"a", "b"})), R"(["a", "b"])");
  EXPECT_EQ(toml_text(Value(std::vector<double>{})), "[]");
  EXPECT_EQ(toml_text(Value{}), "not set");
}

TEST(IsCleanText, KnowsUtf8) {
  for (const char* text :
       {"", "abc", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_clean_text(text)) << text;
  for (const char* text :
       {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xe2\x28\xa1"})
    EXPECT_FALSE(is_clean_text(text));
}

}  // namespace
}  // namespace tempera::config
