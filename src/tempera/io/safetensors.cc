#include "tempera/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>
#include <system_error>
#include <tuple>

#include "tempera/base/error.h"
#include "tempera/io/json.h"
#include "tempera/io/safetensors_header.h"

namespace tempera::io {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "the file's numbers are used as they are");

constexpr const char* kModelName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Every byte of the data belongs to exactly one tensor.
void check_layout(std::vector<HeaderTensor>& tensors, uint64_t data_bytes, std::string_view where) {
  std::sort(tensors.begin(), tensors.end(), [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  const HeaderTensor* previous = nullptr;
  for (const HeaderTensor& tensor : tensors) {
    TEMPERA_CHECK(tensor.begin >= at, where, ": tensor \"", tensor.name, "\" overlaps \"",
                  previous ? previous->name : "", "\": it begins at ", tensor.begin,
                  ", the other ends at ", at);
    TEMPERA_CHECK(tensor.begin == at, where, ": a hole of ", tensor.begin - at,
                  " bytes before tensor \"", tensor.name, "\"");
    at = tensor.end;
    previous = &tensor;
  }
  TEMPERA_CHECK(at <= data_bytes, where, ": the file is cut short: its tensors need ", at,
                " bytes, ", data_bytes, " are there");
  TEMPERA_CHECK(at == data_bytes, where, ": ", data_bytes - at, " bytes follow the last tensor");
}

void check_span(const HeaderTensor& tensor, std::string_view where) {
  TEMPERA_CHECK(tensor.begin <= tensor.end, where, ": tensor \"", tensor.name, "\" ends at ",
                tensor.end, ", before its begin at ", tensor.begin);
  const uint64_t expected = tensor_bytes(where, tensor.name, tensor.dtype, tensor.shape);
  TEMPERA_CHECK(tensor.end - tensor.begin == expected, where, ": tensor \"", tensor.name, "\" has ",
                tensor.end - tensor.begin, " bytes, its shape and dtype ", dtype_name(tensor.dtype),
                " need ", expected);
}

bool by_name(const TensorView& a, const TensorView& b) { return a.name < b.name; }

// Shard file -> names of its tensors.
using ShardNames = std::map<std::string, std::set<std::string>>;

ShardNames read_index(const fs::path& path) {
  const std::string where = path.string();
  const nlohmann::json index = parse_json(read_file(path, kMostHeaderBytes), where);
  TEMPERA_CHECK(
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), where,
      ": an object with a \"weight_map\" object expected");
  ShardNames shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    TEMPERA_CHECK(file.is_string(), where, ": the entry of tensor \"", name,
                  "\" is not the name of a file");
    const auto& shard = file.get_ref<const std::string&>();
    // Only files of this folder: an index must not lead anywhere else.
    TEMPERA_CHECK(shard.ends_with(".safetensors") &&
                      shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
                  where, ": tensor \"", name, "\" is said to be in \"", shard,
                  "\"; a .safetensors file of the same folder expected");
    shards[shard].insert(name);
  }
  TEMPERA_CHECK(!shards.empty(), where, ": the weight_map is empty");
  return shards;
}

// The shard must hold what the index says, no less and no more.
void check_names(const SafetensorsContents& contents, const std::set<std::string>& expected,
                 const std::string& where) {
  for (const std::string& name : expected)
    TEMPERA_CHECK(std::binary_search(contents.tensors.begin(), contents.tensors.end(),
                                     TensorView{.name = name}, by_name),
                  where, ": tensor \"", name, "\" is missing; ", kIndexName, " says it is here");
  for (const TensorView& tensor : contents.tensors)
    TEMPERA_CHECK(expected.contains(tensor.name), where, ": holds tensor \"", tensor.name,
                  "\", which ", kIndexName, " does not place here");
}

}  // namespace

SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  TEMPERA_CHECK(file.size() >= 8, where, ": ", file.size(),
                " bytes; a safetensors file has at least 8");
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  TEMPERA_CHECK(length <= kMostHeaderBytes, where, ": a header of ", length,
                " bytes announced, at most ", kMostHeaderBytes,
                " allowed; is this a safetensors file?");
  TEMPERA_CHECK(length <= file.size() - 8, where, ": a header of ", length,
                " bytes announced, only ", file.size() - 8,
                " follow; the file is cut short or not a safetensors file");
  const std::string_view json = as_text(file.subspan(8, length));
  TEMPERA_CHECK(json.starts_with('{'), where,
                ": the header does not begin with '{'; is this a safetensors file?");
  Header header = parse_header(json, where);
  const auto data = file.subspan(8 + length);
  for (const HeaderTensor& tensor : header.tensors) check_span(tensor, where);
  check_layout(header.tensors, data.size(), where);

  SafetensorsContents contents{.tensors = {}, .metadata = std::move(header.metadata)};
  contents.tensors.reserve(header.tensors.size());
  for (HeaderTensor& tensor : header.tensors)
    contents.tensors.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
                                data.subspan(tensor.begin, tensor.end - tensor.begin)});
  std::sort(contents.tensors.begin(), contents.tensors.end(), by_name);
  return contents;
}

Safetensors::Safetensors(const fs::path& path) : path_(path) {
  std::error_code ignored;  // what cannot be looked at is reported when it is opened
  if (!fs::is_directory(path, ignored)) {
    open_file(path);
  } else if (fs::exists(path / kModelName, ignored)) {
    open_file(path / kModelName);
  } else {
    TEMPERA_CHECK(fs::exists(path / kIndexName, ignored), path.string(), ": neither ", kModelName,
                  " nor ", kIndexName, " in this folder");
    open_shards(path);
  }
}

void Safetensors::open_file(const fs::path& path) {
  files_.emplace_back(path);
  contents_ = parse_safetensors(files_.back().bytes(), path.string());
}

void Safetensors::open_shards(const fs::path& folder) {
  for (const auto& [shard, names] : read_index(folder / kIndexName)) {
    const fs::path path = folder / shard;
    std::error_code ignored;
    TEMPERA_CHECK(fs::exists(path, ignored), path.string(), ": missing, although ", kIndexName,
                  " names it");
    files_.emplace_back(path);
    SafetensorsContents part = parse_safetensors(files_.back().bytes(), path.string());
    check_names(part, names, path.string());
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(contents_.tensors));
    contents_.metadata.merge(part.metadata);
  }
  std::sort(contents_.tensors.begin(), contents_.tensors.end(), by_name);
}

const TensorView* Safetensors::find(std::string_view name) const {
  const auto found = std::lower_bound(
      contents_.tensors.begin(), contents_.tensors.end(), name,
      [](const TensorView& tensor, std::string_view n) { return tensor.name < n; });
  return found != contents_.tensors.end() && found->name == name ? &*found : nullptr;
}

const TensorView& Safetensors::at(std::string_view name) const {
  const TensorView* tensor = find(name);
  TEMPERA_CHECK(tensor, path_.string(), ": no tensor \"", name, "\" among the ",
                contents_.tensors.size(), " in it");
  return *tensor;
}

}  // namespace tempera::io
