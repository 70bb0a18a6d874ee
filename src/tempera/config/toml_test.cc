#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/config/settings.h"
#include "tempera/config/testing_settings.h"

namespace tempera::config {
namespace {

TestSettings read(std::string_view text) { return from_toml<TestSettings>(text, "run.toml"); }

std::string complaint_with(const std::string& text) {
  try {
    read("model = 'm'\n" + text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Toml, SetsEveryKind) {
  const TestSettings settings = read(R"(
model = "m"  # comment
fast = true
steps = 1_000_000
learning-rate = 1
note = 'a'
colour = "green"
betas = [0.5, 1]
stop = ["a", "b,c"]
window = 8
[temperature]
method = "ssa"
layers = [3]
g = "linear"
)");
  EXPECT_EQ(settings.model, "m");
  EXPECT_TRUE(settings.fast);
  EXPECT_EQ(settings.steps, 1'000'000);
  EXPECT_EQ(settings.rate, 1.0);
  EXPECT_EQ(settings.colour, Colour::kGreen);
  EXPECT_EQ(settings.betas, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(settings.stop, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_EQ(settings.window, 8);
  EXPECT_EQ(settings.temperature.method, "ssa");
  EXPECT_EQ(settings.method_options.at("g"), Value(std::string("linear")));
  EXPECT_EQ(settings.note, "a");
  EXPECT_TRUE(settings.causal);
}

TEST(Toml, DumpIsReadBack) {
  TestSettings settings;
  settings.model = "m";
  EXPECT_EQ(read(dump_toml(describe(settings))), read("model = 'm'"));
  settings.note = "quote \" backslash \\ line\n tab\t control \x01\x7f \xc3\xa4 # '''";
  settings.stop = {"", "a,b", "\\"};
  settings.betas = {};
  settings.rate = 1.0 / 3;
  settings.window = 5;
  settings.resume = "";
  settings.colour = Colour::kGreen;
  settings.temperature.layers = {1, 2};
  settings.temperature.method = "ssa";
  settings.method_options = {{"t", 2.0}, {"g", std::string("linear")}, {"keys", true}};
  const std::string dump = dump_toml(describe(settings));
  EXPECT_EQ(read(dump), settings) << dump;
  EXPECT_NE(dump.find("# training steps (1 to 1000000000)\nsteps = 1000\n"), std::string::npos)
      << dump;
}

TEST(Toml, DumpMarksWhatIsNotSet) {
  const std::string dump = dump_toml(describe(TestSettings{}));
  EXPECT_NE(dump.find("# window is not set\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("# model is not set\n"), std::string::npos) << dump;
}

TEST(Toml, GroupsOfGroups) {
  struct Inner {
    int64_t a = 1;
    void declare(Options& options) { options.option("a", a, "help"); }
  };
  struct Outer {
    Inner inner;
    int64_t b = 2;
    void declare(Options& options) {
      options.group("inner", inner);
      options.option("b", b, "help");
    }
  };
  struct Settings {
    Outer outer;
    int64_t c = 3;
    void declare(Options& options) {
      options.group("outer", outer);
      options.option("c", c, "help");
    }
  };
  Settings settings;
  settings.outer.inner.a = 10;
  settings.outer.b = 20;
  settings.c = 30;
  const auto read = from_toml<Settings>(dump_toml(describe(settings)), "f");
  EXPECT_EQ(read.outer.inner.a, 10);
  EXPECT_EQ(read.outer.b, 20);
  EXPECT_EQ(read.c, 30);
  EXPECT_EQ(from_toml<Settings>("outer.inner.a = 4", "f").outer.inner.a, 4);
}

TEST(Toml, MessagesNameKeyAndFile) {
  EXPECT_EQ(complaint_with("stpes = 5"), "unknown key stpes in run.toml; did you mean 'steps'?");
  EXPECT_EQ(complaint_with("steps = 'a'"),
            "key steps in run.toml: \"a\" given, an integer, 1 to 1000000000, expected");
  EXPECT_EQ(complaint_with("steps = 0"),
            "key steps in run.toml: 0 given, an integer, 1 to 1000000000, expected");
  EXPECT_EQ(complaint_with("steps = 1.0"),
            "key steps in run.toml: 1.0 given, an integer, 1 to 1000000000, expected");
  EXPECT_EQ(complaint_with("betas = [0.5, 'a']"),
            "key betas in run.toml: [0.5, \"a\"] given, a list of numbers, 0 to 1, expected");
  EXPECT_EQ(complaint_with("[temperature]\nlayer = [1]"),
            "unknown key temperature.layer in run.toml; did you mean 'temperature.layers'?");
  EXPECT_EQ(complaint_with("[temperature]\ng = 'linear'"),
            "unknown key temperature.g in run.toml: it exists with --temperature ssa");
  EXPECT_NE(complaint_with("steps = 1\nsteps = 2").find("run.toml, line 3"), std::string::npos)
      << complaint_with("steps = 1\nsteps = 2");
}

TEST(Toml, EmptyTables) {
  EXPECT_EQ(complaint_with("[temperature]"), "no error");
  EXPECT_EQ(complaint_with("[tempratures]"),
            "unknown key tempratures in run.toml; did you mean 'temperature'?");
  EXPECT_NE(complaint_with("[steps]"), "no error");
}

TEST(Toml, RefusesWrongValues) {
  for (const char* text :
       {"steps = 99999999999999999999", "steps = true", "fast = 1", "fast = 'true'", "note = 1",
        "learning-rate = nan", "learning-rate = inf", "learning-rate = '1'", "betas = 0.5",
        "note = 2020-01-01", "note = 10:00:00", "stop = [[]]", "stop = [{}]", "[[stop]]\na = 1",
        "note = \"a\\u0000b\"", "stop = [\"\\u0000\"]", "colour = 'blue'",
        "\"temperature.t\" = 1\n[temperature]\nmethod = 'focal'\nt = 2"})
    EXPECT_NE(complaint_with(text), "no error") << text;
}

// Whatever the bytes, only tempera::Error leaves; the process neither crashes nor hangs.
TEST(Toml, NastyBytes) {
  const auto repeated = [](std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  const std::vector<std::string> inputs = {
      std::string(1, '\0'),
      std::string("model = \"a\0b\"", 13),
      "model = \"\xff\xfe\"",
      "\xef\xbb\xbf"
      "modle = 1",
      "\xff\xfe\x00m",
      "model = \"\\uD800\"",
      "model = \"unterminated",
      "model = '''unterminated",
      "model",
      "=",
      "model = ",
      "[;a]",
      "steps = 0xt'\xef\xbb\xb7",
      "model\xc2\xb9 = 1",
      "model = \"\"\"\\\n\xc2\xb9\"\"\"",
      "model = \"\\\xc2\xb9\"",
      "[",
      "[[",
      "]",
      "[]",
      "a = {",
      "steps = 0x",
      "steps = -",
      "learning-rate = 1e",
      "learning-rate = 1e99999999",
      "a = 1\na.b = 2",
      "[a]\n[a]",
      repeated("[", 1'000'000),
      "a = " + repeated("[", 1'000'000),
      "a = " + repeated("{a=", 300'000),
      "a" + repeated(".a", 300'000) + " = 1",
      "[a" + repeated(".a", 300'000) + "]",
      "[[a" + repeated(".a", 300'000) + "]]",
      "a" + repeated(" . 'b' . \"c\"", 300'000) + " = 1",
      "a = \"\"\"" + repeated("\"\"", 3) + "\nb" + repeated(".b", 300'000) + " = 1",
      "a = '\\'\nb" + repeated(".b", 300'000) + " = 1",
      "a = {a" + repeated(".a", 31) + " = {b" + repeated(".b", 31) + " = 1}}",
      repeated("[a.b]\nc.d = 1\n", 2),
      repeated("\n", 100'000),
      repeated("#", 100'000),
  };
  for (const std::string& input : inputs) EXPECT_THROW(read(input), Error) << input.substr(0, 40);
}

TEST(Toml, LongListsAndDottedTextsAreNoDepth) {
  std::string text = "model = '" + std::string(200, '.') + "'\nbetas = [";
  for (int i = 0; i < 1000; ++i) text += "0.5, ";
  EXPECT_EQ(read(text + "]").betas.size(), 1000U);
}

TEST(Toml, LettersBeyondAsciiInTextsAndComments) {
  const TestSettings settings =
      read("\xef\xbb\xbfmodel = '\xc2\xb9'  # \xc2\xb9\nnote = \"\"\"\\\n  a\xc2\xb9\"\"\"\"");
  EXPECT_EQ(settings.model, "\xc2\xb9");
  EXPECT_EQ(settings.note, "a\xc2\xb9\"");
}

TEST(Toml, FilesThatCannotBeRead) {
  const TempFolder folder;
  Sources sources;
  EXPECT_THROW(sources.add_toml_file((folder.path() / "none.toml").string()), UsageError);
  EXPECT_THROW(sources.add_toml_file(folder.path().string()), UsageError);
  write_file(folder.path() / "a.toml", "steps = 5\nmodel = 'm'");
  sources.add_toml_file((folder.path() / "a.toml").string());
  EXPECT_EQ(from_sources<TestSettings>(sources).steps, 5);
}

}  // namespace
}  // namespace tempera::config
