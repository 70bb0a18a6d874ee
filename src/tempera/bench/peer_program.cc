#include "tempera/bench/peer_program.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "tempera/base/error.h"
#include "tempera/bench/peer.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

namespace fs = std::filesystem;

// ENVIRONMENT/bin/python3, where libtorch is in ENVIRONMENT/lib/python3.x/site-packages/torch/lib.
std::string python_of_libtorch() {
  Dl_info library{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &library) == 0) return "";
  fs::path folder = library.dli_fname;
  for (int level = 0; level < 6; ++level) folder = folder.parent_path();
  return (folder / "bin" / "python3").string();
}

// A program that cannot be started has none.
bool has_module(const std::string& python, const std::string& module) {
  const std::string code =
      concat("import importlib.util, json; print(json.dumps({'found': importlib.util.find_spec('",
             module, "') is not None}))");
  try {
    return Peer(python, {python, "-c", code}).read().at("found").get<bool>();
  } catch (const Error&) {
    return false;
  }
}

std::string find_script(const std::string& given, const std::string& name) {
  if (!given.empty()) {
    if (fs::exists(given)) return given;
    throw UsageError(concat("'", given, "' is not there; give the peer's script with --script"));
  }
  const fs::path program = fs::read_symlink("/proc/self/exe");
  for (fs::path folder = program.parent_path(); folder != folder.root_path();
       folder = folder.parent_path())
    for (const char* place : {"share/tempera/peers", "bench/peers"})
      if (fs::exists(folder / place / name)) return (folder / place / name).string();
  throw UsageError(concat("no share/tempera/peers/", name, " beside the program '",
                          program.string(), "'; give the script with --script"));
}

}  // namespace

void PeerProgram::declare(config::Options& options) {
  options.option(
      "python", python,
      "Python with the peers' packages; not given: the one whose torch this program uses, "
      "or python3");
  options.option("script", script, "script that runs the peers; not given: the installed one",
                 {.rare = true});
}

std::string find_python(const std::string& given, const std::vector<std::string>& modules) {
  std::vector<std::string> candidates = {given};
  if (given.empty()) {
    candidates = {python_of_libtorch(), "python3"};
    if (!fs::exists(candidates.front())) candidates.erase(candidates.begin());
  }
  std::string reasons;
  for (const auto& python : candidates) {
    const auto missing = std::ranges::find_if_not(
        modules, [&](const std::string& module) { return has_module(python, module); });
    if (missing == modules.end()) return python;
    reasons += concat("'", python, "' is no Python that has the package ", *missing, "; ");
  }
  throw UsageError(concat(reasons, "give one that has it with --python"));
}

PeerProgram find_peer(const PeerProgram& given, const std::string& name,
                      const std::vector<std::string>& modules) {
  return {.python = find_python(given.python, modules), .script = find_script(given.script, name)};
}

}  // namespace tempera::bench
