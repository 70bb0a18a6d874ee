#include "tempera/base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tempera/base/error.h"
#include "tempera/base/mappings.h"
#include "tempera/base/testing.h"

namespace tempera {
namespace {

namespace fs = std::filesystem;

size_t entries_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(WriteFile, WritesAndReplaces) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a.txt";
  const std::string bytes("one\0two", 7);
  write_file(path, bytes);
  EXPECT_EQ(read_file(path, 100), bytes);
  write_file(path, "");
  EXPECT_EQ(read_file(path, 100), "");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(WriteFile, JoinsParts) {
  const TempFolder folder;
  const std::string_view parts[] = {"one", "", std::string_view("\0two", 4)};
  write_file(folder.path() / "a", parts);
  EXPECT_EQ(read_file(folder.path() / "a", 100), std::string("one\0two", 7));
  write_file(folder.path() / "a", std::span<const std::string_view>());
  EXPECT_EQ(read_file(folder.path() / "a", 100), "");
}

TEST(StreamFile, WritesWhatIsMadeOnTheWay) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  stream_file(path, [](FunctionRef<void(std::string_view)> write) {
    for (int i = 0; i < 3; ++i) write(std::to_string(i));
  });
  EXPECT_EQ(read_file(path, 100), "012");
}

TEST(StreamFile, AFailureOnTheWayLeavesTheOldFile) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  write_file(path, "old");
  EXPECT_EQ(message_of([&] {
              stream_file(path, [](FunctionRef<void(std::string_view)> write) {
                write("new");
                throw Error("no more");
              });
            }),
            "no more");
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(WriteFile, FollowsTheUmask) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  write_file(folder.path() / "a", "x");
  ::umask(before);
  EXPECT_EQ(static_cast<unsigned>(fs::status(folder.path() / "a").permissions()), 0640U);
}

TEST(WriteFile, AFullDiskLeavesTheOldFile) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a.txt";
  write_file(path, "old");
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { write_file(path, std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot write " + path.string()), std::string::npos) << message;
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(WriteFile, NamesThePathItCannotWrite) {
  const TempFolder folder;
  const fs::path path = folder.path() / "missing" / "a.txt";
  const std::string message = message_of([&] { write_file(path, "x"); });
  EXPECT_NE(message.find("missing"), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
  // A folder in the place of the file: the part beside must not stay.
  fs::create_directory(folder.path() / "b");
  EXPECT_THROW(write_file(folder.path() / "b", "x"), Error);
  EXPECT_EQ(entries_in(folder.path()), 1U);
}

TEST(ReadFile, RefusesWhatIsTooLargeOrNoFile) {
  const TempFolder folder;
  write_file(folder.path() / "a", "12345");
  EXPECT_EQ(read_file(folder.path() / "a", 5), "12345");
  EXPECT_NE(message_of([&] { read_file(folder.path() / "a", 4); }).find("5 bytes, at most 4"),
            std::string::npos);
  EXPECT_THROW(read_file(folder.path(), 100), Error);
  EXPECT_THROW(read_file(folder.path() / "none", 100), Error);
  EXPECT_THROW(read_file("/dev/zero", 100), Error);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(folder.path() / "pipe", 100), Error);
}

TEST(ReadFile, ReadsFilesThatTellNoSize) {
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).empty());
  EXPECT_THROW(read_file("/proc/self/status", 10), Error);
}

TEST(MappedFile, MapsBytes) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  const std::string bytes(10'000, 'q');
  write_file(path, bytes);
  MappedFile file(path);
  ASSERT_EQ(file.size(), bytes.size());
  EXPECT_EQ(std::memcmp(file.bytes().data(), bytes.data(), bytes.size()), 0);
  // Replacing the file leaves the mapping as it was.
  write_file(path, "new");
  EXPECT_EQ(file.bytes()[9'999], std::byte{'q'});

  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.size(), bytes.size());
  MappedFile other(path);
  other = std::move(moved);
  EXPECT_EQ(other.bytes()[0], std::byte{'q'});
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const TempFolder folder;
  write_file(folder.path() / "a", "");
  const MappedFile file(folder.path() / "a");
  EXPECT_EQ(file.size(), 0U);
  EXPECT_TRUE(file.bytes().empty());
}

TEST(MappedFile, RefusesFoldersAndMissingFiles) {
  const TempFolder folder;
  EXPECT_THROW(MappedFile{folder.path()}, Error);
  EXPECT_THROW(MappedFile{folder.path() / "none"}, Error);
}

// In a process of its own, which the signal ends.
TEST(MappedFile, AFileThatIsCutShortIsNamed) {
  const TempFolder folder;
  const fs::path path = folder.path() / "shard";
  write_file(path, std::string(100'000, 'q'));
  const auto read_lost = [&] {
    explain_lost_mappings();
    const MappedFile file(path);
    fs::resize_file(path, 0);
    std::_Exit(file.bytes()[50'000] == std::byte{'q'} ? 0 : 3);
  };
  EXPECT_EXIT(read_lost(), testing::ExitedWithCode(1), path.string() + " was cut short while");
}

TEST(Sync, AcceptsWhatIsThere) {
  const TempFolder folder;
  write_file(folder.path() / "a", "x");
  EXPECT_NO_THROW(sync_folder(folder.path()));
  EXPECT_THROW(sync_folder(folder.path() / "a"), Error);
  EXPECT_THROW(sync_folder(folder.path() / "none"), Error);
}

TEST(TempFolder, IsRemovedWithItsFiles) {
  fs::path path;
  {
    const TempFolder folder;
    path = folder.path();
    fs::create_directory(path / "inner");
    std::ofstream(path / "inner" / "a") << "x";
    EXPECT_TRUE(fs::is_directory(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace tempera
