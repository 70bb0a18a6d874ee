#include "tempera/base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tempera/base/files.h"

namespace tempera {
namespace {

// Pages of the range that the process has in memory, by the kernel's own table.
int64_t pages_held(std::span<const std::byte> bytes, size_t page) {
  int64_t held = 0;
  std::vector<uint64_t> entries(bytes.size() / page);
  FILE* table = std::fopen("/proc/self/pagemap", "rb");
  if (!table) return -1;
  const auto first = reinterpret_cast<uintptr_t>(bytes.data()) / page;
  std::fseek(table, static_cast<long>(first * sizeof(uint64_t)), SEEK_SET);
  const size_t read = std::fread(entries.data(), sizeof(uint64_t), entries.size(), table);
  std::fclose(table);
  if (read != entries.size()) return -1;
  for (const uint64_t entry : entries) held += static_cast<int64_t>(entry >> 63);
  return held;
}

TEST(ReleasePages, GivesMemoryBackAndTheBytesStay) {
  const TempFolder folder;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::string text(8 * page, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i / 7);
  write_file(folder.path() / "file", text);
  const MappedFile file(folder.path() / "file");
  const auto same = [&] {
    return std::ranges::equal(file.bytes(), std::as_bytes(std::span<const char>(text)));
  };
  ASSERT_TRUE(same());
  if (pages_held(file.bytes(), page) != 8) GTEST_SKIP() << "the system does not tell";
  release_pages(file.bytes().subspan(1, 4 * page));  // three whole pages
  EXPECT_EQ(pages_held(file.bytes().subspan(page, 3 * page), page), 0);
  EXPECT_EQ(pages_held(file.bytes().first(page), page), 1);
  EXPECT_TRUE(same());
  release_pages({});
  release_pages(file.bytes().subspan(1, page));  // no whole page in it
  EXPECT_EQ(pages_held(file.bytes(), page), 8);
}

}  // namespace
}  // namespace tempera
