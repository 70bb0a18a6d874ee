#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/output.h"
#include "tempera/train/checkpoint.h"

namespace tempera::train {

// Messages to a person; one line each.
using Say = std::function<void(std::string_view line)>;

// What run.json says of the run in a folder.
struct RunMark {
  std::string verb;  // who works there, as a person types it: "train", "study graph"
  Json settings;     // what the run began with
  std::string id = {};
  std::string build = {};  // of the program that began it; empty: before builds were noted
};

// As run.json tells it; `verb`: whose file it is where that does not say. Throws Error where it is
// none.
RunMark mark_in(const std::filesystem::path& file, const std::string& verb);
// Unset in a new folder. Throws Error where the folder holds the run of another verb.
std::optional<RunMark> read_mark(const WorkFolder& folder, const std::string& verb);
// Marks a new folder, and gives the run an id.
RunMark write_mark(const WorkFolder& folder, RunMark mark);

// Where another build of the program began the run: "was begun by another build ...". Else empty.
std::string other_build(const RunMark& mark);
// Refuses to go on with measurements that another build began: they would not be of one instrument.
void refuse_other_build(const WorkFolder& folder, const RunMark& mark);

// A checkpoint that was found complete.
struct FoundCheckpoint {
  std::filesystem::path path;
  Json state;
};

// The folder of a training run:
//
//   run.json         the verb, the settings that the run began with, and its id
//   run.toml         the same for --config
//   log.jsonl        a line a logged step
//   checkpoints/     step-00000100, ...
//   last, best       links to checkpoints
//   data/            token shards, where the run made some
//   report.html      what it did so far
//   lock             held while a process works here
class RunFolder {
 public:
  // Refuses a folder that holds something else than a run of this verb. more_names: what the verb
  // makes there beside the above.
  RunFolder(const std::filesystem::path& path, const std::string& verb,
            const std::vector<std::string>& more_names = {});

  const std::filesystem::path& path() const { return folder_.path(); }
  const std::string& verb() const { return verb_; }
  std::filesystem::path log_path() const { return path() / "log.jsonl"; }
  std::filesystem::path data_path() const { return path() / "data"; }
  std::filesystem::path checkpoint_path(int64_t step) const;

  // The run that is here; unset in a new folder.
  const std::optional<RunMark>& mark() const { return mark_; }
  // Makes way for a new run; see WorkFolder.
  std::filesystem::path set_aside();
  // Throws unless this build of the program began the run.
  void refuse_other_build() const;
  // Notes the settings of a new run, also as the file run.toml from which it can go on.
  void begin(const Json& settings, const std::string& toml);
  // Writes that file where it is missing: a process may have been killed before it did.
  void offer(const std::string& toml) const;
  // From now on, the run stays: its data was read, and the work begins. What was made until then in
  // a new folder is removed again if that never happens.
  void keep() { folder_.keep(); }

  // The newest complete checkpoint of this run. Damaged and foreign ones are skipped with a line.
  // Throws Error where there are checkpoints and none is good.
  std::optional<FoundCheckpoint> newest(const Say& say) const;

  // Makes `last` and `best` lead to these. A process may have been killed after it saved a
  // checkpoint and before it did.
  void turn_links(int64_t step, std::optional<int64_t> best_step) const;

  // Writes a checkpoint, turns the links to it, and then removes all but the newest `keep` and the
  // best. What is not of this run stays; where it has the name of the new one, under another.
  void save(Checkpoint checkpoint, int64_t step, std::optional<int64_t> best_step, int64_t keep);

 private:
  bool is_own(const std::filesystem::path& checkpoint) const;

  WorkFolder folder_;
  std::string verb_;
  std::optional<RunMark> mark_;
};

}  // namespace tempera::train
