#include "tempera/train/run_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/version.h"
#include "tempera/io/json.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr uint64_t kMostSettings = 16U << 20;

std::string make_id() {
  std::random_device random;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStep.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

// By falling step.
std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

// A link is replaced by renaming, so that it always leads somewhere.
void turn_link(const fs::path& link, const fs::path& target) {
  std::error_code code;
  const fs::path beside = part_name(link);
  fs::create_directory_symlink(target, beside, code);
  if (!code) fs::rename(beside, link, code);
  TEMPERA_CHECK(!code, "cannot make the link ", link.string(), ": ", code.message());
}

std::vector<std::string> names_of_run(const std::vector<std::string>& more) {
  std::vector<std::string> names = {"run.toml", "log.jsonl", "checkpoints", "last",
                                    "best",     "data",      "report.html"};
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void put_aside(const fs::path& path) {
  for (int number = 1;; ++number) {
    const fs::path other = path.string() + concat(".other-", number);
    if (fs::exists(fs::symlink_status(other))) continue;
    fs::rename(path, other);
    return;
  }
}

}  // namespace

RunMark mark_in(const fs::path& file, const std::string& verb) {
  const Json run = io::parse_ordered_json(read_file(file, kMostSettings), file.string());
  const auto is_text = [&](const char* key) { return run.contains(key) && run[key].is_string(); };
  TEMPERA_CHECK(run.is_object() && is_text("id") && run.contains("settings"), file.string(),
                " is not the description of a run; give another folder");
  return {.verb = is_text("verb") ? run["verb"].get<std::string>() : verb,
          .settings = run["settings"],
          .id = run["id"].get<std::string>(),
          .build = is_text("build") ? run["build"].get<std::string>() : ""};
}

std::optional<RunMark> read_mark(const WorkFolder& folder, const std::string& verb) {
  if (!folder.is_marked()) return std::nullopt;
  RunMark mark = mark_in(folder.mark(), verb);
  TEMPERA_CHECK(mark.verb == verb, "'", folder.path().string(), "' holds a run of `tempera ",
                mark.verb, "`; give `tempera ", verb, "` another folder with --out");
  return mark;
}

RunMark write_mark(const WorkFolder& folder, RunMark mark) {
  TEMPERA_CHECK(!folder.is_marked(), "'", folder.path().string(), "' holds a run already");
  mark.id = make_id();
  mark.build = build_id();
  const Json run{{"id", mark.id},
                 {"verb", mark.verb},
                 {"program", version()},
                 {"build", mark.build},
                 {"settings", mark.settings}};
  write_file(folder.mark(), run.dump(2) + "\n");
  return mark;
}

std::string other_build(const RunMark& mark) {
  if (mark.build == build_id()) return "";
  return concat("was begun by another build of tempera (",
                mark.build.empty() ? "an earlier version" : mark.build, "; this one is ",
                build_id(), ")");
}

void refuse_other_build(const WorkFolder& folder, const RunMark& mark) {
  const std::string other = other_build(mark);
  if (!other.empty())
    throw UsageError(concat("the run in '", folder.path().string(), "' ", other,
                            ", and the results of two are not mixed; give --fresh to begin anew "
                            "(what is there is moved to a folder in it), or another folder with "
                            "--out"));
}

RunFolder::RunFolder(const fs::path& path, const std::string& verb,
                     const std::vector<std::string>& more_names)
    : folder_(path, names_of_run(more_names)), verb_(verb), mark_(read_mark(folder_, verb)) {
  if (mark_) remove_leftovers(path / "checkpoints");
}

fs::path RunFolder::set_aside() {
  mark_.reset();
  return folder_.set_aside();
}

void RunFolder::refuse_other_build() const { train::refuse_other_build(folder_, *mark_); }

fs::path RunFolder::checkpoint_path(int64_t step) const {
  std::array<char, 40> name;
  std::snprintf(name.data(), name.size(), "step-%08lld", static_cast<long long>(step));
  return path() / "checkpoints" / name.data();
}

void RunFolder::begin(const Json& settings, const std::string& toml) {
  mark_ = write_mark(folder_, {.verb = verb_, .settings = settings});
  offer(toml);
}

void RunFolder::offer(const std::string& toml) const {
  const fs::path file = path() / "run.toml";
  if (!fs::exists(file)) write_file(file, toml);
}

std::optional<FoundCheckpoint> RunFolder::newest(const Say& say) const {
  const auto found = checkpoints_in(path() / "checkpoints");
  for (const auto& [step, path] : found) {
    try {
      FoundCheckpoint checkpoint{path, verify_checkpoint(path)};
      const std::string run = checkpoint.state.value("run", "");
      TEMPERA_CHECK(run == mark_->id, path.string(), " belongs to another run");
      TEMPERA_CHECK(checkpoint.state.value("step", int64_t{-1}) == step, path.string(),
                    " is of another step than its name says");
      return checkpoint;
    } catch (const Error& error) {
      say(concat("skipped a checkpoint: ", error.what()));
    }
  }
  TEMPERA_CHECK(found.empty(), "no checkpoint in '", (path() / "checkpoints").string(),
                "' can be used (see above); put a good one there, or give another folder with "
                "--out to begin anew");
  return std::nullopt;
}

// A damaged one whose state can be read is.
bool RunFolder::is_own(const fs::path& checkpoint) const {
  const fs::path file = checkpoint / "state.json";
  if (!fs::is_regular_file(file)) return false;
  const Json state = Json::parse(read_file(file, kMostSettings), nullptr, false);
  return state.is_object() && state.contains("run") && state["run"] == mark_->id;
}

void RunFolder::turn_links(int64_t step, std::optional<int64_t> best_step) const {
  const auto relative = [&](int64_t number) {
    return checkpoint_path(number).lexically_relative(path());
  };
  turn_link(path() / "last", relative(step));
  if (best_step && fs::exists(checkpoint_path(*best_step)))
    turn_link(path() / "best", relative(*best_step));
  sync_folder(path());
}

void RunFolder::save(Checkpoint checkpoint, int64_t step, std::optional<int64_t> best_step,
                     int64_t keep) {
  checkpoint.state["run"] = mark_->id;
  const fs::path path_of_step = checkpoint_path(step);
  if (fs::exists(path_of_step) && !is_own(path_of_step)) put_aside(path_of_step);
  write_checkpoint(path_of_step, checkpoint);
  turn_links(step, best_step);
  int64_t kept = 0;
  for (const auto& [number, found] : checkpoints_in(path() / "checkpoints")) {
    // A later one was skipped, for it is damaged or of another run.
    if (number > step || !is_own(found)) continue;
    if (++kept > keep && number != best_step) remove_checkpoint(found);
  }
}

}  // namespace tempera::train
