#include "tempera/base/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tempera/base/files.h"
#include "tempera/base/testing.h"

namespace tempera {
namespace {

namespace fs = std::filesystem;
constexpr auto kFile = NewOutput::Kind::kFile;
constexpr auto kFolder = NewOutput::Kind::kFolder;

// Names and bytes of everything below a folder.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    found[entry.path().lexically_relative(folder).string()] =
        entry.is_regular_file() ? read_file(entry.path(), 1 << 20) : "";
  return found;
}

void write_two(NewOutput& out) {
  write_file(out.part() / "a", "1");
  write_file(out.part() / "b", "2");
  out.finish();
}

TEST(PartName, IsToldFromAPersonsNames) {
  EXPECT_EQ(owner_of_part(part_name("x/data")), "data");
  EXPECT_EQ(part_name("x/data").parent_path(), "x");
  for (const char* name : {".data.part", "data.tempera-0123456789abcdef.part", ".data.123456.part",
                           ".data.tempera-0123456789abcdeg.part", ".tempera-0123456789abcdef.part",
                           ".data.tempera-0123456789abcdef.part.bak"})
    EXPECT_EQ(owner_of_part(name), std::nullopt) << name;
  EXPECT_LT(part_name(std::string(255, 'x')).filename().string().size(), 256U);
}

TEST(NewOutput, AppearsComplete) {
  for (const char* name : {"new", "new/", "above/new", "above/above/new/", "empty", "empty/",
                           "link", "link/", "link/../new", "empty/.", "empty/../new"}) {
    const TempFolder folder;
    fs::create_directory(folder.path() / "empty");
    fs::create_directory_symlink("empty", folder.path() / "link");
    {
      NewOutput out(folder.path() / name, kFolder);
      EXPECT_EQ(contents(folder.path()).size(), 2U) << name;  // nothing before it is asked for
      write_two(out);
    }
    EXPECT_EQ(contents(folder.path() / name),
              (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}}))
        << name;
    EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  }
}

TEST(NewOutput, LeavesNothingOfAFailure) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "empty");
  const auto before = contents(folder.path());
  for (const char* name : {"new", "above/above/new", "empty"}) {
    NewOutput out(folder.path() / name, kFolder);
    write_file(out.part() / "a", "1");
  }
  NewOutput(folder.path() / "above" / "file", kFile).part();
  EXPECT_EQ(contents(folder.path()), before);
}

TEST(NewOutput, RefusesWhatIsThere) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "full");
  write_file(folder.path() / "full" / "thesis.tex", "text");
  write_file(folder.path() / "file", "text");
  fs::create_symlink("nowhere", folder.path() / "dangling");
  const auto before = contents(folder.path() / "full");
  const auto complaint = [&](const char* name, NewOutput::Kind kind) {
    return message_of([&] { const NewOutput out(folder.path() / name, kind); });
  };
  EXPECT_TRUE(says(complaint("full", kFolder), "thesis.tex"));
  EXPECT_TRUE(says(complaint("full/", kFolder), "thesis.tex"));
  EXPECT_TRUE(says(complaint("file", kFolder), "is there already"));
  EXPECT_TRUE(says(complaint("file", kFile), "is there already"));
  EXPECT_TRUE(says(complaint("full", kFile), "is there already"));
  EXPECT_TRUE(says(complaint("new/", kFile), "the name of a folder"));
  EXPECT_TRUE(says(complaint("dangling", kFolder), "is there already"));
  EXPECT_TRUE(says(complaint("file/below", kFolder), "is not a folder"));
  EXPECT_EQ(contents(folder.path() / "full"), before);
}

TEST(NewOutput, ReplacesNothingThatCameMeanwhile) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "empty");
  NewOutput file(folder.path() / "file", kFile), made(folder.path() / "made", kFolder),
      empty(folder.path() / "empty", kFolder);
  write_file(file.part(), "ours");
  for (const char* name : {"a", "b"}) {
    write_file(made.part() / name, "ours");
    write_file(empty.part() / name, "ours");
  }
  write_file(folder.path() / "file", "theirs");
  fs::create_directory(folder.path() / "made");
  write_file(folder.path() / "made" / "b", "theirs");
  write_file(folder.path() / "empty" / "b", "theirs");
  for (auto* out : {&file, &made, &empty})
    EXPECT_TRUE(says(message_of([&] { out->finish(); }), "exists"));
  EXPECT_EQ(read_file(folder.path() / "file", 100), "theirs");
  EXPECT_EQ(read_file(folder.path() / "made" / "b", 100), "theirs");
  EXPECT_EQ(read_file(folder.path() / "empty" / "b", 100), "theirs");
  EXPECT_FALSE(fs::exists(folder.path() / "empty" / "a"));
}

TEST(WorkFolder, LeavesNothingUnlessKept) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "empty");
  for (const char* name : {"empty", "new", "above/new/"}) {
    {
      const WorkFolder work(folder.path() / name, {"data"});
      EXPECT_FALSE(work.is_marked());
      write_file(work.mark(), "{}");
      fs::create_directory(work.path() / "data");
      write_file(work.path() / "data" / "shard", "text");
    }
    EXPECT_EQ(contents(folder.path()).size(), 1U) << name;
  }
}

TEST(WorkFolder, LeavesWhatAPersonPutThereMeanwhile) {
  const TempFolder folder;
  {
    const WorkFolder work(folder.path() / "run", {"data"});
    write_file(work.mark(), "{}");
    write_file(work.path() / "notes", "text");
  }
  EXPECT_EQ(contents(folder.path() / "run"),
            (std::map<std::string, std::string>{{"notes", "text"}}));
}

TEST(WorkFolder, GoesOnWhereItIsMarked) {
  const TempFolder folder;
  const fs::path path = folder.path() / "run";
  {
    WorkFolder work(path, {"data"});
    write_file(work.mark(), "{}");
    work.keep();
  }
  const fs::path left = part_name(path / "data"), another = part_name(path / "thesis");
  for (const auto& file : {left, another, path / "notes", path / ".data.part"})
    write_file(file, "text");
  {
    const WorkFolder work(path, {"data"});
    EXPECT_TRUE(work.is_marked());
  }
  EXPECT_FALSE(fs::exists(left));  // of a process that was killed
  EXPECT_TRUE(fs::exists(another) && fs::exists(path / "notes") && fs::exists(path / ".data.part"));
  EXPECT_TRUE(fs::exists(path / WorkFolder::kMark));
}

TEST(WorkFolder, LeavesAMarkThatIsAPersonsAsItWas) {
  const TempFolder folder;
  write_file(folder.path() / WorkFolder::kMark, "mine");
  {
    const WorkFolder work(folder.path(), {"data"});
  }  // whoever opens it finds out, and does not keep it
  EXPECT_EQ(contents(folder.path()).size(), 1U);
}

TEST(WorkFolder, BeginsWhereAProcessWasKilledBeforeItsMark) {
  const TempFolder folder;
  write_file(folder.path() / "lock", "12345\n");
  write_file(part_name(folder.path() / WorkFolder::kMark), "{");
  const WorkFolder work(folder.path(), {"data"});
  EXPECT_FALSE(work.is_marked());
  EXPECT_EQ(contents(folder.path()).size(), 1U);
}

// A run with a result, and a person's file beside it.
void make_run(const fs::path& path) {
  WorkFolder folder(path, {"jobs"});
  write_file(folder.mark(), "first");
  fs::create_directory(path / "jobs");
  write_file(path / "jobs" / "1.json", "result");
  folder.keep();
  write_file(path / "notes.txt", "mine");
}

TEST(WorkFolder, SetsAsideWhatAnEarlierRunMade) {
  const TempFolder temp;
  const fs::path path = temp.path() / "run";
  make_run(path);
  for (const char* aside : {"before-1", "before-2"}) {
    WorkFolder folder(path, {"jobs"});
    EXPECT_EQ(folder.set_aside(), path / aside);
    EXPECT_FALSE(folder.is_marked());
    write_file(folder.mark(), "next");
    folder.keep();
  }
  EXPECT_EQ(read_file(path / "run.json", 10), "next");
  EXPECT_EQ(read_file(path / "before-1" / "run.json", 10), "first");
  EXPECT_EQ(read_file(path / "before-1" / "jobs" / "1.json", 10), "result");
  EXPECT_EQ(read_file(path / "before-2" / "run.json", 10), "next");
  EXPECT_EQ(read_file(path / "notes.txt", 10), "mine");
  EXPECT_FALSE(fs::exists(path / "jobs"));
}

TEST(WorkFolder, PutsBackWhatMadeWayForNothing) {
  const TempFolder temp;
  const fs::path path = temp.path() / "run";
  make_run(path);
  fs::create_directory(path / "before-1");  // a person's
  const auto before = contents(path);
  for (const bool marked : {false, true}) {
    {
      WorkFolder folder(path, {"jobs"});
      folder.set_aside();
      fs::create_directory(path / "jobs");
      write_file(path / "jobs" / "2.json", "new");
      if (marked) write_file(folder.mark(), "next");
    }
    EXPECT_EQ(contents(path), before);
  }
}

TEST(WorkFolder, RefusesWhatIsNotARuns) {
  for (const char* name : {"run.toml", "notes", "lock", "data", ".data.part", "log.jsonl"}) {
    const TempFolder folder;
    write_file(folder.path() / name, "mine");
    EXPECT_TRUE(says(message_of([&] {
                       const WorkFolder work(folder.path(), {"data", "run.toml"});
                     }),
                     concat("holds '", name, "'")));
    EXPECT_EQ(contents(folder.path()), (std::map<std::string, std::string>{{name, "mine"}}));
  }
  // A mark and a lock that is a person's.
  const TempFolder folder;
  write_file(folder.path() / WorkFolder::kMark, "{}");
  write_file(folder.path() / "lock", "mine");
  EXPECT_TRUE(says(message_of([&] { const WorkFolder work(folder.path(), {}); }), "'lock'"));
  EXPECT_EQ(read_file(folder.path() / "lock", 100), "mine");
}

TEST(WorkFolder, BelongsToOneAtATime) {
  const TempFolder folder;
  EXPECT_FALSE(is_worked_in(folder.path() / "run"));
  {
    const WorkFolder work(folder.path() / "run", {});
    EXPECT_TRUE(is_worked_in(folder.path() / "run"));
    EXPECT_TRUE(says(message_of([&] { const WorkFolder second(folder.path() / "run", {}); }),
                     concat("another process (pid ", ::getpid(), ")")));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
  {
    WorkFolder work(folder.path() / "kept", {});
    work.keep();
  }
  ASSERT_TRUE(fs::exists(folder.path() / "kept" / "lock"));
  EXPECT_FALSE(is_worked_in(folder.path() / "kept"));
}

// However long a process that asks is stopped in between.
TEST(WorkFolder, OpensWhileOthersAskWhoWorksThere) {
  const TempFolder folder;
  const auto path = folder.path() / "run";
  {
    WorkFolder work(path, {});
    work.keep();
  }
  std::atomic<bool> done = false;
  std::vector<std::thread> asking;
  for (int i = 0; i < 4; ++i)
    asking.emplace_back([&] {
      while (!done) is_worked_in(path);
    });
  for (int time = 0; time < 200; ++time) EXPECT_NO_THROW(WorkFolder(path, {})) << time;
  done = true;
  for (auto& thread : asking) thread.join();
}

}  // namespace
}  // namespace tempera
