#include "tempera/train/checkpoint.h"

#include <array>
#include <cstdio>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/data/checksum.h"
#include "tempera/io/json.h"
#include "tempera/models/tensor_file.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "tempera checkpoint 1";
constexpr const char* kState = "state.json";
constexpr uint64_t kMostState = 64U << 20;

std::string hex(std::span<const std::byte> bytes) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(data::checksum(bytes)));
  return text.data();
}

std::string hex(std::string_view text) { return hex(std::as_bytes(std::span(text))); }

void move_folder(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  TEMPERA_CHECK(!code, "cannot rename ", from.string(), " to ", to.string(), ": ", code.message());
}

// known: descriptions of some of them, whose bytes need not be read again.
Json describe_files(const fs::path& folder, const Json& known) {
  std::map<std::string, Json> found;  // sorted: directories have no order
  for (const Json& shard : known)
    found[shard.at("file").get<std::string>()] = {{"bytes", shard.at("bytes")},
                                                  {"checksum", shard.at("checksum")}};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!found.contains(name)) found[name] = describe_file(entry.path());
  }
  return Json(found);
}

void write_files(const fs::path& folder, const Checkpoint& checkpoint) {
  Json state = checkpoint.state;
  Json shards = Json::array();
  if (checkpoint.write_shards)
    state["shards"] = shards = checkpoint.write_shards(folder);
  else
    models::write_tensors(folder / kOptimizerFile, checkpoint.optimizer);
  models::write_tensors(folder / kModelFile, checkpoint.model);
  for (const auto& [name, text] : checkpoint.files) write_file(folder / name, text);
  state["format"] = kFormat;
  state["files"] = describe_files(folder, shards);
  state["checksum"] = hex(state.dump());
  write_file(folder / kState, state.dump(2) + "\n");
  sync_folder(folder);
}

void check_file(const fs::path& path, const Json& expected) {
  const MappedFile file(path);
  const auto bytes = expected.at("bytes").get<uint64_t>();
  TEMPERA_CHECK(file.size() == bytes, path.string(), " has ", file.size(), " bytes instead of ",
                bytes);
  TEMPERA_CHECK(hex(file.bytes()) == expected.at("checksum").get<std::string>(), path.string(),
                " is damaged or of another checkpoint: its checksum is wrong");
}

Json read_state(const fs::path& path) {
  Json state = io::parse_ordered_json(read_file(path, kMostState), path.string());
  const std::string format = state.is_object() ? state.value("format", "") : "";
  TEMPERA_CHECK(format == kFormat, path.string(), " has the format '", format, "'; expected '",
                kFormat, "'");
  const std::string sum = state.value("checksum", "");
  state.erase("checksum");
  TEMPERA_CHECK(hex(state.dump()) == sum, path.string(), " is damaged: its checksum is wrong");
  return state;
}

}  // namespace

void write_checkpoint(const fs::path& folder, const Checkpoint& checkpoint) {
  const fs::path partial = part_name(folder);
  std::error_code code;
  fs::create_directories(partial, code);
  TEMPERA_CHECK(!code, "cannot make the folder ", partial.string(), ": ", code.message());
  try {
    write_files(partial, checkpoint);
    if (fs::exists(folder)) remove_checkpoint(folder);
    move_folder(partial, folder);
  } catch (...) {
    fs::remove_all(partial, code);
    throw;
  }
  sync_folder(folder.parent_path());
}

Json verify_checkpoint(const fs::path& folder) {
  try {
    Json state = read_state(folder / kState);
    const Json& files = state.at("files");
    std::vector<std::string> needed = {kModelFile};
    if (!state.contains("shards")) needed.emplace_back(kOptimizerFile);
    for (const auto& name : needed)
      TEMPERA_CHECK(files.contains(name), folder.string(), " has no ", name);
    for (const auto& [name, expected] : files.items()) check_file(folder / name, expected);
    return state;
  } catch (const Json::exception& error) {
    throw Error(concat((folder / kState).string(), " is damaged: ", error.what()));
  }
}

Json describe_file(const fs::path& path) {
  const MappedFile file(path);
  return {{"bytes", file.size()}, {"checksum", hex(file.bytes())}};
}

void remove_leftovers(const fs::path& parent) {
  std::error_code code;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(parent, code))
    if (owner_of_part(entry.path())) parts.push_back(entry.path());
  for (const auto& part : parts) fs::remove_all(part, code);
}

void remove_checkpoint(const fs::path& folder) {
  const fs::path removed = part_name(folder);
  move_folder(folder, removed);
  std::error_code ignored;  // the next run removes what is left
  fs::remove_all(removed, ignored);
}

}  // namespace tempera::train
