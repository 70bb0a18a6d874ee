#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

#include "tempera/base/files.h"
#include "tempera/config/command_line.h"
#include "tempera/config/settings.h"
#include "tempera/config/testing_settings.h"

namespace tempera::config {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), count);
  return text;
}

// Sources the script in a real bash and asks for what the last of the words may become.
class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    const std::vector<VerbDescription> verbs = {{"train", "", {}, describe(TestSettings{})},
                                                {"trace", "", {}, Options{}}};
    write_file(folder_.path() / "script", bash_completion("prog", verbs));
    write_file(folder_.path() / "data.txt", "");
  }

  std::string complete(const std::vector<std::string>& words) {
    std::string array;
    for (const std::string& word : words) array += " '" + word + "'";
    const std::string script = "cd '" + folder_.path().string() +
                               "' && source ./script && COMP_WORDS=(prog" + array +
                               ") COMP_CWORD=" + std::to_string(words.size()) +
                               " && _prog_complete && echo ${COMPREPLY[*]}";
    write_file(folder_.path() / "ask", script);
    return output_of("bash --norc '" + (folder_.path() / "ask").string() + "' 2>&1");
  }

  TempFolder folder_;
};

TEST_F(CompletionTest, Verbs) {
  EXPECT_EQ(complete({"tra"}), "train trace\n");
  EXPECT_EQ(complete({"--v"}), "--version\n");
}

TEST_F(CompletionTest, Flags) {
  EXPECT_EQ(complete({"train", "--st"}), "--steps --stop\n");
  EXPECT_EQ(complete({"train", "--temperature.l"}), "--temperature.layers\n");
  EXPECT_EQ(complete({"train", "--temperature.k"}), "--temperature.keys\n") << "of another method";
  EXPECT_EQ(complete({"trace", "--"}), "--config --dump-config --help --help-all\n");
}

TEST_F(CompletionTest, Values) {
  EXPECT_EQ(complete({"train", "--colour", ""}), "red green\n");
  EXPECT_EQ(complete({"train", "--colour", "=", "g"}), "green\n");
  EXPECT_EQ(complete({"train", "--colour", "="}), "red green\n");
  EXPECT_EQ(complete({"train", "--temperature", "s"}), "softmax ssa\n");
  EXPECT_EQ(complete({"train", "--temperature.g", "l"}), "linear\n");
  EXPECT_EQ(complete({"train", "--causal", "=", "f"}), "false\n");
  EXPECT_EQ(complete({"train", "--out", "da"}), "data.txt\n");
}

TEST_F(CompletionTest, AfterABoolComesAWord) {
  EXPECT_EQ(complete({"train", "--fast", "da"}), "data.txt\n");
  EXPECT_EQ(complete({"train", "--fast", "--col"}), "--colour\n");
}

TEST_F(CompletionTest, IsRegistered) {
  EXPECT_EQ(output_of("cd '" + folder_.path().string() +
                      "' && bash --norc -c 'source ./script && complete -p prog'"),
            "complete -o filenames -F _prog_complete prog\n");
}

}  // namespace
}  // namespace tempera::config
