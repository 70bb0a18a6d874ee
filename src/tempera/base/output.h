#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Where a verb writes. One rule for all of them: what was there before is never overwritten or
// removed. The place is checked before the work starts; a failure leaves it as it was found.
namespace tempera {

// A folder that was made if it was not there, with the folders above it.
class MadeFolder {
 public:
  MadeFolder() = default;
  // Throws Error, with advice, where there is no such folder and none can be made.
  explicit MadeFolder(const std::filesystem::path& folder);
  // Removes those that were made here, as far as nothing is in them.
  void undo() noexcept;

 private:
  std::vector<std::filesystem::path> made_;  // the innermost last
};

// A file or a folder that appears complete or not at all, where nothing is yet.
class NewOutput {
 public:
  enum class Kind { kFile, kFolder };

  // Throws Error unless nothing has the name, or an empty folder for a folder, and the place can be
  // written. Changes nothing.
  NewOutput(std::filesystem::path path, Kind kind);
  // Unless it is finished, nothing is left behind.
  ~NewOutput();
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  // Where to write: a name that nobody else has, which for a folder is made at the first call.
  const std::filesystem::path& part();
  // Gives it its name. Throws Error where something has taken that meanwhile.
  void finish();

 private:
  std::filesystem::path given_, path_, part_;
  Kind kind_;
  MadeFolder parent_;
};

// Whether a process is working in a run's folder now.
bool is_worked_in(const std::filesystem::path& folder);

// A folder in which a run works and goes on after an interruption. It belongs to one process at a
// time, by a lock that ends with the process, however it ends.
class WorkFolder {
 public:
  // The file that tells a run's folder from others. Who opens the folder writes and checks it.
  static constexpr const char* kMark = "run.json";

  // Throws Error, naming what is in the way, unless the folder is absent, empty or marked; names
  // the process that holds it where another does. `names`: what a run makes in its folder, beside
  // the mark.
  WorkFolder(std::filesystem::path path, std::vector<std::string> names);
  // What was made in a folder that was new is removed again, unless the run was kept.
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path mark() const { return path_ / kMark; }
  // Whether the folder was marked when it was opened.
  bool is_marked() const { return marked_; }
  // Makes way for a new run: moves what the one that is here made into a new folder in this one,
  // "before-1" or the next free number, and gives that. Other files stay. Is undone unless the new
  // run is kept.
  std::filesystem::path set_aside();
  // From now on what the run makes stays.
  void keep() { kept_ = true; }

 private:
  void lock();
  bool try_lock();
  void put_back() noexcept;

  std::filesystem::path path_;
  std::vector<std::string> names_;
  MadeFolder made_;
  int lock_ = -1;
  bool made_lock_ = false;
  bool marked_ = false;
  bool kept_ = false;
  std::filesystem::path aside_;  // where the run before this one is
};

}  // namespace tempera
