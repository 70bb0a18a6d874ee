#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <string>

#include "tempera/base/error.h"
#include "tempera/io/gguf.h"

// A large model may stand in several files, NAME-00001-of-00003.gguf and so on: each a GGUF file of
// its own that says which part it is; the first has the metadata of all.
namespace tempera::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSplitKeys = "split.";
constexpr std::string_view kPart = "split.no";
constexpr std::string_view kParts = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

// "-00001-of-00003.gguf"
std::string part_ending(int64_t part, int64_t parts) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf",
                static_cast<long long>(part) + 1, static_cast<long long>(parts));
  return text.data();
}

// The name of a part, from that of the part `known`.
fs::path part_path(const fs::path& path, int64_t known, int64_t part, int64_t parts) {
  const std::string name = path.filename().string();
  const std::string ending = part_ending(known, parts);
  TEMPERA_CHECK(name.ends_with(ending), path.string(), ": part ", known + 1, " of ", parts,
                " of a model; a name that ends in ", ending,
                " expected, since the names tell where the others are");
  return path.parent_path() /
         (name.substr(0, name.size() - ending.size()) + part_ending(part, parts));
}

void check_part(const GgufMetadata& metadata, const fs::path& path, int64_t part, int64_t parts) {
  const int64_t count = metadata.get_or<int64_t>(kParts, 1);
  const int64_t number = metadata.get_or<int64_t>(kPart, 0);
  TEMPERA_CHECK(count == parts && number == part, path.string(), ": ", kPart, " is ", number,
                " and ", kParts, " is ", count, "; ", part, " and ", parts, " expected");
}

// The metadata of the whole: no part of anything.
GgufMetadata without_split(const GgufMetadata& metadata, const std::string& where) {
  GgufMetadata whole(where);
  for (const auto& [key, value] : metadata.entries())
    if (!key.starts_with(kSplitKeys)) whole.add(key, value);
  return whole;
}

}  // namespace

Gguf::Gguf(const fs::path& path) : path_(path) {
  files_.emplace_back(path);
  contents_ = parse_gguf(files_.front().bytes(), path.string());
  const GgufMetadata& metadata = contents_.metadata;
  const int64_t parts = metadata.get_or<int64_t>(kParts, 1);
  if (parts <= 1) return;
  const int64_t part = metadata.get_or<int64_t>(kPart, 0);
  TEMPERA_CHECK(part >= 0 && part < parts, path.string(), ": ", kPart, " is ", part, ", of ", parts,
                " parts");
  TEMPERA_CHECK(part == 0, path.string(), " is part ", part + 1, " of ", parts,
                " of a model; give the first, ", part_path(path, part, 0, parts).string());
  for (int64_t i = 1; i < parts; ++i) add_part(part_path(path, 0, i, parts), i, parts);
  finish_parts();
}

void Gguf::add_part(const fs::path& path, int64_t part, int64_t parts) {
  TEMPERA_CHECK(fs::exists(path), path.string(), " is not there: the model in ", path_.string(),
                " has ", parts, " parts");
  files_.emplace_back(path);
  GgufContents more = parse_gguf(files_.back().bytes(), path.string());
  check_part(more.metadata, path, part, parts);
  std::ranges::move(more.tensors, std::back_inserter(contents_.tensors));
}

void Gguf::finish_parts() {
  auto& tensors = contents_.tensors;
  const auto count = static_cast<int64_t>(tensors.size());
  const auto wanted = contents_.metadata.get_or<int64_t>(kSplitTensors, count);
  TEMPERA_CHECK(count == wanted, path_.string(), ": the parts have ", count, " tensors; ", wanted,
                " expected by ", kSplitTensors);
  std::ranges::sort(tensors, {}, &GgufTensor::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &GgufTensor::name);
  TEMPERA_CHECK(twice == tensors.end(), path_.string(), ": two parts have a tensor named \"",
                twice->name, "\"");
  contents_.metadata = without_split(contents_.metadata, path_.string());
}

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      contents_.tensors, name, {},
      [](const GgufTensor& tensor) -> std::string_view { return tensor.name; });
  return found != contents_.tensors.end() && found->name == name ? &*found : nullptr;
}

const GgufTensor& Gguf::at(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  TEMPERA_CHECK(tensor, path_.string(), ": no tensor \"", name, "\" among the ",
                contents_.tensors.size(), " in it");
  return *tensor;
}

}  // namespace tempera::io
