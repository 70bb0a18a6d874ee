#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tempera/train/checkpoint.h"

namespace tempera::train {

// Messages to a person; one line each.
using Say = std::function<void(std::string_view line)>;

// A folder that belongs to one process at a time. Held by a lock that ends with the process,
// however it ends.
class FolderLock {
 public:
  // Makes the folder if it is not there. Throws Error, naming the process that holds it, where
  // another does.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Leaves no trace of a folder that was made for nothing.
  void undo();

 private:
  std::filesystem::path folder_;
  bool made_ = false;  // the folder was not there before
  int descriptor_ = -1;
};

// The folder of a training run:
//
//   run.json         the settings that the run began with, and its id
//   run.toml         the same for --config
//   log.jsonl        a line a logged step
//   checkpoints/     step-00000100, ...
//   last, best       links to checkpoints
//   data/            token shards, where the run made some
//   lock             held while a process works here
class RunFolder {
 public:
  // Refuses a folder that holds something else than a run.
  explicit RunFolder(const std::filesystem::path& path);
  // What was made in the folder is removed again unless the run was kept.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log_path() const { return path_ / "log.jsonl"; }
  std::filesystem::path data_path() const { return path_ / "data"; }
  std::filesystem::path checkpoint_path(int64_t step) const;

  // The settings of the run that is here; unset in a new folder.
  const std::optional<Json>& settings() const { return settings_; }
  // Notes the settings of a new run, also as the file run.toml from which it can go on.
  void begin(const Json& settings, const std::string& toml);
  // From now on, the run stays: its data was read, and training begins.
  void keep() { kept_ = true; }

  // The newest complete checkpoint of this run. Damaged and foreign ones are skipped with a line.
  // Throws Error where there are checkpoints and none is good.
  std::optional<Checkpoint> newest(const Say& say) const;

  // Writes a checkpoint, turns the links to it, and then removes all but the newest `keep` and the
  // best.
  void save(Checkpoint checkpoint, int64_t step, std::optional<int64_t> best_step, int64_t keep);

 private:
  std::filesystem::path path_;
  FolderLock lock_;
  std::string id_;
  std::optional<Json> settings_;
  bool kept_ = false;
};

}  // namespace tempera::train
