#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tempera/bench/benchmark.h"
#include "tempera/cli/verb.h"
#include "tempera/config/help.h"
#include "tempera/study/study.h"

namespace tempera::cli {
namespace {

using config::Entry;
using config::Kind;

const Verb& verb_named(const std::string& name) {
  for (const Verb& verb : all_verbs())
    if (verb.name == name) return verb;
  throw std::runtime_error("no verb " + name);
}

config::Options options_of(const std::string& name, const std::vector<std::string>& arguments) {
  return config::parse_command_line(arguments, verb_named(name).declare).options;
}

// Every verb, and every study and benchmark, which have options of their own.
std::map<std::string, config::Options> all_options() {
  std::map<std::string, config::Options> all;
  for (const Verb& verb : all_verbs()) all.emplace(verb.name, verb.declare(config::Sources{}));
  for (const auto& entry : bench::benchmarks())
    all.emplace("bench " + entry.name, options_of("bench", {entry.name, "--help"}));
  for (const auto& entry : study::studies())
    all.emplace("study " + entry.name, options_of("study", {entry.name, "--help"}));
  return all;
}

// The words of a command as a shell reads them; quotes are single ones.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::istringstream pieces(command);
  bool quoted = false;
  for (std::string piece; std::getline(pieces, piece, '\''); quoted = !quoted) {
    if (quoted) {
      words.push_back(piece);
      continue;
    }
    std::istringstream plain(piece);
    for (std::string word; plain >> word;) words.push_back(word);
  }
  return words;
}

Kind element_kind(Kind kind) {
  switch (kind) {
    case Kind::kIntList:
      return Kind::kInt;
    case Kind::kRealList:
      return Kind::kReal;
    case Kind::kTextList:
      return Kind::kText;
    default:
      return kind;
  }
}

TEST(Verbs, EveryOptionStandsInASection) {
  for (const auto& [verb, options] : all_options())
    for (const Entry& entry : options.entries())
      EXPECT_TRUE(entry.positional || entry.section != config::Section::kOther)
          << "tempera " << verb << " --" << entry.name();
}

TEST(Verbs, AnOptionTakesTheSameKindOfValueInAllOfThem) {
  std::map<std::string, std::pair<Kind, std::string>> known;
  for (const auto& [verb, options] : all_options())
    for (const Entry& entry : options.entries()) {
      const std::string& alias = entry.declaration.alias;
      const std::string flag = alias.empty() ? entry.name() : alias;
      const Kind kind = element_kind(entry.kind);
      const auto [first, added] = known.try_emplace(flag, kind, verb);
      EXPECT_EQ(first->second.first, kind)
          << "--" << flag << " of " << verb << " and of " << first->second.second;
    }
}

TEST(Verbs, ExamplesAreCommandsThatTheProgramTakes) {
  for (const Verb& verb : all_verbs()) {
    EXPECT_FALSE(verb.examples.empty()) << verb.name;
    for (const auto& [command, meaning] : verb.examples) {
      const size_t start = command.find("tempera ");
      ASSERT_NE(start, std::string::npos) << command;
      const std::string ours = command.substr(start, command.find_first_of("|>)", start) - start);
      auto words = words_of(ours);
      ASSERT_GE(words.size(), 2U) << command;
      EXPECT_EQ(words[1], verb.name) << command;
      words.erase(words.begin(), words.begin() + 2);
      if (const auto file = std::ranges::find(words, "--config"); file != words.end())
        words.erase(file, file + 2);  // it is not here
      EXPECT_NO_THROW(config::parse_command_line(words, verb.declare)) << command;
    }
  }
}

TEST(Verbs, HelpFitsTwoScreens) {
  for (const Verb& verb : all_verbs()) {
    const std::string text =
        config::help_text("tempera", verb.describe(verb.declare(config::Sources{})), /*all=*/false);
    EXPECT_LE(std::ranges::count(text, '\n'), 100) << verb.name;
  }
}

TEST(Verbs, SamplingIsNotCalledTemperature) {
  for (const char* verb : {"generate", "chat"}) {
    try {
      options_of(verb, {"model", "--temperature", "0.8"});
      FAIL() << verb;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("--sampling-temperature"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tempera::cli
