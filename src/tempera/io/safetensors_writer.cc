#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "tempera/base/error.h"
#include "tempera/io/safetensors.h"
#include "tempera/io/safetensors_header.h"

namespace tempera::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kWhere = "safetensors";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string dump(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const Json::exception& error) {
    throw Error(concat(kWhere, ": a name or a metadata text is not UTF-8: ", error.what()));
  }
}

void check(const std::vector<TensorView>& tensors) {
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    TEMPERA_CHECK(names.insert(tensor.name).second, kWhere, ": two tensors named \"", tensor.name,
                  "\"");
    TEMPERA_CHECK(tensor.name != "__metadata__", kWhere, ": a tensor cannot be named __metadata__");
    TEMPERA_CHECK(tensor.shape.size() <= kMostDimensions, kWhere, ": tensor \"", tensor.name,
                  "\" has ", tensor.shape.size(), " dimensions, at most ", kMostDimensions,
                  " expected");
    const uint64_t expected = tensor_bytes(kWhere, tensor.name, tensor.dtype, tensor.shape);
    TEMPERA_CHECK(tensor.bytes.size() == expected, kWhere, ": tensor \"", tensor.name, "\" has ",
                  tensor.bytes.size(), " bytes, its shape and dtype ", dtype_name(tensor.dtype),
                  " need ", expected);
  }
}

// Consecutive tensors, as many as fit.
std::vector<std::vector<TensorView>> split(const std::vector<TensorView>& tensors,
                                           uint64_t shard_bytes) {
  std::vector<std::vector<TensorView>> shards(1);
  uint64_t used = 0;
  for (const TensorView& tensor : tensors) {
    if (!shards.back().empty() && tensor.bytes.size() > shard_bytes - std::min(used, shard_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += tensor.bytes.size();
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  std::array<char, 80> name;
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

void check_vacant(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  TEMPERA_CHECK(!error, "cannot read ", folder.string(), ": ", error.message(),
                "; an existing folder expected");
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    TEMPERA_CHECK(!name.starts_with("model") || name.find(".safetensors") == std::string::npos,
                  folder.string(), ": already holds ", name, "; choose a folder without a model");
  }
}

}  // namespace

std::string safetensors_header(std::vector<TensorView>& tensors, const Metadata& metadata) {
  check(tensors);
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  // Pushed at the end by hand: looking each name up first would take quadratic time.
  auto& entries = json.get_ref<Json::object_t&>();
  uint64_t at = 0;
  for (const TensorView& tensor : tensors) {
    Json entry = Json::object();
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {at, at + tensor.bytes.size()};
    at += tensor.bytes.size();
    entries.Container::emplace_back(tensor.name, std::move(entry));
  }
  std::string text = dump(json, -1);
  text.append((8 - text.size() % 8) % 8, ' ');
  TEMPERA_CHECK(text.size() <= kMostHeaderBytes, kWhere, ": a header of ", text.size(),
                " bytes would be needed, at most ", kMostHeaderBytes, " are allowed");
  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return prefix + text;
}

void write_safetensors(const fs::path& path, std::vector<TensorView> tensors,
                       const Metadata& metadata) {
  const std::string header = safetensors_header(tensors, metadata);
  std::vector<std::string_view> parts{header};
  for (const TensorView& tensor : tensors) parts.push_back(as_text(tensor.bytes));
  write_file(path, parts);
}

void write_safetensors_folder(const fs::path& folder, const std::vector<TensorView>& tensors,
                              const Metadata& metadata, uint64_t shard_bytes) {
  check(tensors);
  check_vacant(folder);
  const auto shards = split(tensors, shard_bytes);
  if (shards.size() == 1) return write_safetensors(folder / "model.safetensors", tensors, metadata);
  uint64_t bytes = 0, parameters = 0;
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_safetensors(folder / name, shards[i], metadata);
    for (const TensorView& tensor : shards[i]) {
      weight_map[tensor.name] = name;
      bytes += tensor.bytes.size();
      parameters += tensor.bytes.size() / dtype_size(tensor.dtype);
    }
  }
  Json index;
  index["metadata"] = {{"total_parameters", parameters}, {"total_size", bytes}};
  index["weight_map"] = weight_map;
  write_file(folder / "model.safetensors.index.json", dump(index, 2) + "\n");
}

}  // namespace tempera::io
