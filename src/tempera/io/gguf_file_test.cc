#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/io/gguf.h"
#include "tempera/io/testing_gguf.h"

namespace tempera::io {
namespace {

namespace fs = std::filesystem;

struct Part {
  uint16_t number = 0, count = 2;
  std::string tensor;  // one of 4 bytes
  int32_t tensors = 2;
};

void save(const fs::path& path, const Part& part) {
  GgufMetadata metadata;
  if (part.number == 0) metadata.add("general.architecture", std::string("llama"));
  metadata.add("split.no", part.number);
  metadata.add("split.count", part.count);
  metadata.add("split.tensors.count", part.tensors);
  const std::string bytes = part.tensor + "data";
  const GgufTensor tensor{
      .name = part.tensor, .type = GgmlType::kF32, .shape = {1}, .bytes = bytes_of(bytes).last(4)};
  write_gguf(path, metadata, std::span(&tensor, 1));
}

class SplitGgufTest : public testing::Test {
 protected:
  fs::path path(const char* name) const { return folder_.path() / name; }
  fs::path first() const { return path("m-00001-of-00002.gguf"); }
  fs::path second() const { return path("m-00002-of-00002.gguf"); }

  // What is wrong with a model whose parts are good but for this.
  std::string complaint(Part one, Part two) {
    save(first(), one);
    save(second(), two);
    return message_of([&] { const Gguf file(first()); });
  }

  TempFolder folder_;
};

TEST_F(SplitGgufTest, PartsAreOneModel) {
  ASSERT_EQ(complaint({.number = 0, .tensor = "b"}, {.number = 1, .tensor = "a"}), "");
  const Gguf file(first());
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.at("b").bytes.size(), 4U);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().get<std::string>("general.architecture"), "llama");
  EXPECT_EQ(file.metadata().find("split.count"), nullptr);
}

TEST_F(SplitGgufTest, PartsThatDoNotFitAreRefused) {
  const Part a{.number = 0, .tensor = "a"}, b{.number = 1, .tensor = "b"};
  EXPECT_EQ(complaint(a, b), "");
  EXPECT_TRUE(
      says(complaint(a, {.number = 1, .tensor = "a"}), "two parts have a tensor named \"a\""));
  EXPECT_TRUE(says(complaint(a, {.number = 0, .tensor = "b"}), "split.no is 0"));
  EXPECT_TRUE(says(complaint(a, {.number = 1, .count = 3, .tensor = "b"}), "split.count is 3"));
  EXPECT_TRUE(
      says(complaint({.number = 0, .tensor = "a", .tensors = 3}, b), "2 tensors; 3 expected"));
  EXPECT_TRUE(says(complaint({.number = 2, .tensor = "a"}, b), "split.no is 2, of 2 parts"));
  EXPECT_TRUE(
      says(complaint({.number = 1, .tensor = "a"}, b), "a name that ends in -00002-of-00002"));
  EXPECT_TRUE(
      says(complaint({.number = 0, .count = 3, .tensor = "a"}, b), "ends in -00001-of-00003"));
}

TEST_F(SplitGgufTest, TheFirstPartIsAskedForAndMissingOnesAreNamed) {
  ASSERT_EQ(complaint({.number = 0, .tensor = "a"}, {.number = 1, .tensor = "b"}), "");
  const auto message = [](const fs::path& path) {
    return message_of([&] { const Gguf file(path); });
  };
  EXPECT_TRUE(says(message(second()), "give the first, " + first().string()));
  fs::remove(second());
  EXPECT_TRUE(says(message(first()), second().string() + " is not there"));
  write_file(second(), "GGUF");
  EXPECT_TRUE(says(message(first()), second().string()));
}

}  // namespace
}  // namespace tempera::io
