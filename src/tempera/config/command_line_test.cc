#include "tempera/config/command_line.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/config/settings.h"
#include "tempera/config/testing_settings.h"

namespace tempera::config {
namespace {

using Arguments = std::vector<std::string>;
using Action = CommandLine::Action;

template <class Settings>
Options declare(const Sources& sources) {
  Settings settings;
  Options options(sources);
  settings.declare(options);
  return options;
}

CommandLine parse(const Arguments& arguments) {
  return parse_command_line(arguments, declare<TestSettings>);
}

TestSettings load(const Arguments& arguments) {
  const CommandLine line = parse(arguments);
  EXPECT_EQ(line.action, Action::kRun);
  return from_sources<TestSettings>(line.sources);
}

std::string message_of(const Arguments& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CommandLine, SetsEveryKind) {
  const TestSettings settings =
      load({"m", "--fast", "--causal=false", "--steps", "5", "--learning-rate=0.5", "--note", "a b",
            "--colour", "green", "--betas", "0.1,0.2", "--stop", "a,b", "--window", "3",
            "--temperature.layers", "1,2"});
  EXPECT_EQ(settings.model, "m");
  EXPECT_TRUE(settings.fast);
  EXPECT_FALSE(settings.causal);
  EXPECT_EQ(settings.steps, 5);
  EXPECT_EQ(settings.rate, 0.5);
  EXPECT_EQ(settings.note, "a b");
  EXPECT_EQ(settings.colour, Colour::kGreen);
  EXPECT_EQ(settings.betas, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(settings.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(settings.window, 3);
  EXPECT_EQ(settings.resume, std::nullopt);
  EXPECT_EQ(settings.temperature.layers, (std::vector<int64_t>{1, 2}));
}

TEST(CommandLine, PlacesAndDashes) {
  EXPECT_EQ(load({"--model", "m"}).model, "m");
  EXPECT_EQ(load({"--fast", "m"}).model, "m");
  EXPECT_EQ(load({"--", "--fast"}).model, "--fast");
  EXPECT_EQ(load({"-"}).model, "-");
  EXPECT_EQ(load({"m", "--note=--steps"}).note, "--steps");
  EXPECT_EQ(load({"m", "--note="}).note, "");
  EXPECT_EQ(load({"m", "--note=a=b"}).note, "a=b");
  EXPECT_EQ(load({"m", "--note", "- a"}).note, "- a");
  EXPECT_EQ(load({"m", "--steps", "1", "--steps", "2"}).steps, 2);
  EXPECT_EQ(message_of({"m", "--learning-rate", "-1"}),
            "--learning-rate: -1.0 given, a number, above 0, up to 10, expected");
}

TEST(CommandLine, RepeatedListsAddUp) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(load({"m", "--stop", "a", "--stop", "b,c", "--stop=d"}).stop,
            (Texts{"a", "b", "c", "d"}));
  EXPECT_EQ(load({"m", "--stop", "a\\,b", "--stop", "c\\", "--stop", "d"}).stop,
            (Texts{"a,b", "c\\", "d"}));
  EXPECT_EQ(load({"m", "--stop", "a", "--stop="}).stop, (Texts{"a"}));
  EXPECT_EQ(load({"m", "--betas", "0.1", "--betas", "0.2,0.3"}).betas,
            (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_EQ(
      load({"m", "--temperature.layers", "1", "--temperature.layers", "2"}).temperature.layers,
      (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(message_of({"m", "--betas", "0.1", "--betas", "x"}),
            "--betas: \"0.1,x\" given, a list of numbers, 0 to 1, expected");
  // The file's list is replaced, not continued.
  const TempFolder folder;
  const std::string path = (folder.path() / "run.toml").string();
  write_file(path, "stop = ['file', 'other']\n");
  EXPECT_EQ(load({"m", "--config", path}).stop, (Texts{"file", "other"}));
  EXPECT_EQ(load({"m", "--stop", "a", "--config", path, "--stop", "b"}).stop, (Texts{"a", "b"}));
}

TEST(CommandLine, MethodOptionsAppear) {
  const TestSettings settings =
      load({"--temperature.keys", "m", "--temperature.g", "linear", "--temperature", "ssa"});
  EXPECT_EQ(settings.temperature.method, "ssa");
  EXPECT_EQ(settings.model, "m");
  EXPECT_EQ(
      settings.method_options,
      (std::map<std::string, Value>{{"t", 1.0}, {"g", std::string("linear")}, {"keys", true}}));
  EXPECT_EQ(load({"m", "--temperature", "focal"}).method_options.at("t"), Value(0.4));
  EXPECT_EQ(message_of({"m", "--temperature", "focal", "--temperature.g", "linear"}),
            "unknown option --temperature.g: it exists with --temperature ssa");
  EXPECT_EQ(message_of({"m", "--temperature.t", "1"}),
            "unknown option --temperature.t: it exists with --temperature focal, or with "
            "--temperature ssa");
}

TEST(CommandLine, DefaultThenFileThenFlag) {
  const TempFolder folder;
  const std::string path = (folder.path() / "run.toml").string();
  write_file(path, "model = 'file'\nsteps = 5\nnote = 'file'\ntemperature = 'focal'\n");
  const TestSettings settings = load({"--config", path, "--note", "flag", "--temperature.t=3"});
  EXPECT_EQ(settings.model, "file");
  EXPECT_EQ(settings.steps, 5);
  EXPECT_EQ(settings.note, "flag");
  EXPECT_EQ(settings.rate, 3e-4);
  EXPECT_EQ(settings.method_options.at("t"), Value(3.0));
  // The alias in the file, the full name as flag, and the other way round.
  EXPECT_EQ(load({"--config", path, "--temperature.method", "ssa"}).temperature.method, "ssa");
  write_file(path, "[temperature]\nmethod = 'focal'\n");
  EXPECT_EQ(load({"m", "--config=" + path, "--temperature", "ssa"}).temperature.method, "ssa");
  write_file(path, "stpes = 5\n");
  EXPECT_NE(message_of({"m", "--config", path}).find("did you mean 'steps'?"), std::string::npos);
  EXPECT_NE(message_of({"m", "--config", path + "x"}).find("No such file"), std::string::npos);
}

TEST(CommandLine, DumpIsTheSameConfiguration) {
  const TempFolder folder;
  const std::string path = (folder.path() / "run.toml").string();
  const Arguments arguments = {"m",       "--steps",       "5",       "--note",
                               "q\"\\\n", "--temperature", "ssa",     "--temperature.g",
                               "linear",  "--stop",        "a\\,b,c", "--colour",
                               "green"};
  Arguments with_dump = arguments;
  with_dump.emplace_back("--dump-config");
  const CommandLine line = parse(with_dump);
  ASSERT_EQ(line.action, Action::kDumpConfig);
  write_file(path, dump_toml(line.options));
  EXPECT_EQ(load({"--config", path}), load(arguments));
  EXPECT_EQ(parse({"--dump-config"}).action, Action::kDumpConfig) << "a missing MODEL is fine here";
  EXPECT_THROW(parse({"--dump-config", "--stepz"}), UsageError);
}

TEST(CommandLine, WrongUsage) {
  EXPECT_EQ(message_of({"m", "--stepz", "5"}), "unknown option --stepz; did you mean '--steps'?");
  EXPECT_EQ(message_of({"m", "-x"}), "unknown option -x");
  EXPECT_EQ(message_of({"m", "--dump-confg"}),
            "unknown option --dump-confg; did you mean '--dump-config'?");
  EXPECT_EQ(message_of({"m", "--steps"}),
            "--steps needs a value (--steps=VALUE if it begins with a dash)");
  EXPECT_EQ(message_of({"m", "--steps", "--fast"}),
            "--steps needs a value (--steps=VALUE if it begins with a dash)");
  EXPECT_EQ(message_of({}), "model is missing: the model's folder");
  EXPECT_EQ(message_of({""}), "model is missing: the model's folder");
  EXPECT_EQ(message_of({"m", "n"}), "unexpected argument 'n'");
  EXPECT_EQ(message_of({"m", "--model", "n"}), "--model is given twice: once as 'm' by its place");
  EXPECT_EQ(message_of({"m", "--fast=1"}), "--fast: \"1\" given, true or false expected");
  EXPECT_EQ(message_of({"m", "--dump-config=yes"}), "--dump-config takes no value, 'yes' given");
  EXPECT_EQ(message_of({"m", "--steps", "0"}),
            "--steps: 0 given, an integer, 1 to 1000000000, expected");
}

TEST(CommandLine, PositionalLists) {
  struct Settings {
    std::optional<std::string> what;
    std::vector<std::string> files;
    void declare(Options& options) {
      options.positional("what", what, choices({"attention", "train"}), "what to measure");
      options.positional("files", files, "files");
    }
  };
  const auto load_files = [](const Arguments& arguments) {
    return from_sources<Settings>(parse_command_line(arguments, declare<Settings>).sources);
  };
  EXPECT_EQ(load_files({}).what, std::nullopt);
  EXPECT_EQ(load_files({"train"}).what, "train");
  EXPECT_EQ(load_files({"train", "a,b", "c\\"}).files, (std::vector<std::string>{"a,b", "c\\"}));
  EXPECT_THROW(load_files({"trian"}), UsageError);
}

VerbDescription train_verb(const Options& options) {
  return {"train", "trains a model", {{"tempera train MODEL", "the usual way"}}, options};
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Help, ListsTypeAndDefault) {
  const CommandLine line = parse({"--help", "--temperature", "ssa"});
  ASSERT_EQ(line.action, Action::kHelp);
  const std::string text = help_text("tempera", train_verb(line.options), /*all=*/false);
  expect_parts(text, {"Usage: tempera train MODEL [options]\ntrains a model\n",
                      "Examples:\n  # the usual way\n  tempera train MODEL\n", "--steps N",
                      "training steps [default 1000]", "--colour red|green",
                      "colour of the report [default red]", "--causal=true|false",
                      "--temperature softmax|focal|ssa", "--temperature.g sigmoid|linear",
                      "--config FILE", "--betas X,X,...", "decay rates [default 0.9,0.95]",
                      "--window N", "a flag that is given again adds to its list"});
  size_t start = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
    EXPECT_LE(end - start, 100U) << text.substr(start, end - start);
    start = end + 1;
  }
}

TEST(Help, ShowsEverythingOnRequest) {
  const CommandLine line = parse({"--help-all"});
  ASSERT_EQ(line.action, Action::kHelpAll);
  expect_parts(help_text("tempera", train_verb(line.options), /*all=*/true),
               {"training steps [1 to 1000000000; default 1000]", "[0 to 1; default 0.9,0.95]",
                "key temperature.method"});
}

TEST(Help, KeepsSectionsApartAndRareOptionsBack) {
  int64_t steps = 1, keep = 2;
  double base = 3;
  Options options;
  options.section(Section::kOutput);
  options.option("keep", keep, "checkpoints", {.rare = true});
  options.section(Section::kTraining);
  options.option("steps", steps, "training steps");
  struct Rope {
    double& base;
    void declare(Options& members) { members.option("base", base, "of the angles"); }
  } rope{base};
  options.group("rope", rope);
  const VerbDescription verb{"train", "trains", {}, options};
  const std::string few = help_text("tempera", verb, /*all=*/false);
  expect_parts(few, {"\nTraining:\n  --steps N", "2 more options: `tempera train --help-all`"});
  EXPECT_EQ(few.find("Output:"), std::string::npos) << few;
  EXPECT_EQ(few.find("rope.base"), std::string::npos) << few;
  const std::string all = help_text("tempera", verb, /*all=*/true);
  expect_parts(all, {"--keep N", "--rope.base X"});
  EXPECT_LT(all.find("Training:"), all.find("Output:"));  // not the order of the declarations
  EXPECT_EQ(all.find("more option"), std::string::npos) << all;
}

TEST(Help, ManualEscapesWhatTroffWouldRead) {
  std::string model;
  Options options;
  options.option("out", model, ".hidden \\ files");
  const std::vector<VerbDescription> verbs = {{"train", "trains", {}, options}};
  expect_parts(manual_page("tempera", "1.2", "it trains", verbs),
               {".TH tempera 1 \"\" \"tempera 1.2\"\n", ".SH train\n",
                ".B \\-\\-out TEXT\n\\&.hidden \\e files\n"});
}

TEST(CommandLine, SaysWhatARenamedOptionIsCalledNow) {
  struct Settings {
    double heat = 1;
    void declare(Options& options) {
      options.option("sampling-heat", heat, "heat");
      options.renamed("heat", "it is --sampling-heat now");
    }
  };
  try {
    parse_command_line(Arguments{"--heat", "2"}, declare<Settings>);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "unknown option --heat: it is --sampling-heat now");
  }
}

TEST(Help, IsThereForWrongCommandLines) {
  EXPECT_EQ(parse({"--steps", "abc", "--help"}).action, Action::kHelp);
  EXPECT_EQ(parse({"--stepz", "-h"}).action, Action::kHelp);
  EXPECT_NE(parse({"-h", "--temperature", "nothing"}).options.find("steps"), nullptr);
  EXPECT_EQ(load({"--", "--help"}).model, "--help");
}

}  // namespace
}  // namespace tempera::config
