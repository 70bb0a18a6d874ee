#include "tempera/study/folder.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/config/settings.h"
#include "tempera/study/pool.h"

namespace tempera::study {
namespace {

namespace fs = std::filesystem;

// Whether a study can begin there. A lock alone is what an interrupted beginning left.
bool check_fresh(const fs::path& out) {
  if (fs::exists(out / "settings.json")) return false;
  TEMPERA_CHECK(!fs::is_directory(out) || fs::is_empty(out) || fs::exists(out / "lock"),
                out.string(), ": the folder holds something else; give another with --out");
  return true;
}

}  // namespace

StudyFolder::StudyFolder(const fs::path& out, const config::Options& given, const Declare& declare)
    : out_(out), given_(given), fresh_(check_fresh(out)), lock_(out) {
  if (fresh_) return;
  const fs::path file = out / "settings.json";
  config::Sources sources;
  sources.add_json(read_result(file), file.string());
  const config::Options stored = declare(sources);
  stored.check_known(sources);
  const auto differences = config::differences(given, stored);
  if (!differences.empty())
    throw UsageError(concat(out.string(), " holds a study with other settings:\n",
                            config::to_text(differences),
                            "give another folder with --out, or remove this one"));
}

StudyFolder::~StudyFolder() {
  if (!fresh_ || begun_) return;
  std::error_code ignored;
  fs::remove_all(out_ / "data", ignored);
  lock_.undo();
}

void StudyFolder::begin() {
  begun_ = true;
  if (!fresh_) return;
  fs::create_directories(out_ / "jobs");
  write_file(out_ / "settings.json", config::to_json(given_).dump(2) + "\n");
}

fs::path StudyFolder::result_file(const std::string& label, int64_t seed) const {
  std::string name = label;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '=') c = '_';
  return out_ / "jobs" / concat(name, "-seed", seed, ".json");
}

}  // namespace tempera::study
