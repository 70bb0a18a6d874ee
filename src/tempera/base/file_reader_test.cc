#include "tempera/base/file_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tempera/base/error.h"
#include "tempera/base/files.h"

namespace tempera {
namespace {

namespace fs = std::filesystem;

TEST(FileReader, ReadsToTheEndAndAgain) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  write_file(path, "0123456789");
  FileReader file(path);
  EXPECT_EQ(file.size(), 10U);
  for (int time = 0; time < 2; ++time, file.rewind()) {
    std::array<char, 4> some = {};
    std::string all;
    while (const size_t count = file.read(some)) all.append(some.data(), count);
    EXPECT_EQ(all, "0123456789");
  }
  EXPECT_THROW(FileReader{folder.path()}, Error);
  EXPECT_THROW(FileReader{folder.path() / "none"}, Error);
}

TEST(FileReader, RefusesAFileThatIsWrittenTo) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  std::array<char, 6> some = {};
  for (const uint64_t size : {0U, 7U, 20U}) {
    write_file(path, "0123456789");
    FileReader file(path);
    file.read(some);
    fs::resize_file(path, size);
    EXPECT_THROW(file.read(some), Error) << size;
  }
}

}  // namespace
}  // namespace tempera
