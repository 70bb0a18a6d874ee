#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/io/safetensors.h"

namespace tempera::io {
namespace {

namespace fs = std::filesystem;

// Tensors of every dtype, in an order that is not the file's, over memory of their own.
struct Sample {
  Sample() : memory(4096) {
    std::iota(memory.begin(), memory.end(), uint8_t{0});
    size_t at = 0;
    for (size_t i = 0; i <= static_cast<size_t>(DType::kU64); ++i) {
      const auto dtype = static_cast<DType>(i);
      add("layer." + std::to_string(i), dtype, {3, static_cast<int64_t>(i)}, at);
      add("\u00e9 \"quoted\" " + std::to_string(i), dtype, {}, at);
    }
  }
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape, size_t& at) {
    size_t size = dtype_size(dtype);
    for (const int64_t n : shape) size *= static_cast<size_t>(n);
    tensors.push_back(
        {name, dtype, std::move(shape), std::as_bytes(std::span(memory)).subspan(at, size)});
    at += size;
  }
  std::vector<uint8_t> memory;
  std::vector<TensorView> tensors;
};

void expect_same(const Safetensors& read, const std::vector<TensorView>& tensors) {
  ASSERT_EQ(read.tensors().size(), tensors.size());
  for (const TensorView& expected : tensors) {
    const TensorView& found = read.at(expected.name);
    EXPECT_EQ(found.dtype, expected.dtype);
    EXPECT_EQ(found.shape, expected.shape);
    ASSERT_EQ(found.bytes.size(), expected.bytes.size());
    EXPECT_TRUE(std::equal(found.bytes.begin(), found.bytes.end(), expected.bytes.begin()))
        << expected.name;
  }
}

TEST(SafetensorsWriterTest, RoundTripsEveryDType) {
  const TempFolder folder;
  const Sample sample;
  const fs::path path = folder.path() / "a.safetensors";
  write_safetensors(path, sample.tensors, {{"format", "pt"}, {"note", "\u00e9\n\""}});
  const Safetensors read(path);
  expect_same(read, sample.tensors);
  EXPECT_EQ(read.metadata(), (Metadata{{"format", "pt"}, {"note", "\u00e9\n\""}}));
  EXPECT_EQ(read.find("nothing"), nullptr);
  EXPECT_TRUE(says(message_of([&] { read.at("nothing"); }), "no tensor \"nothing\" among the 30"));
  // Every tensor is aligned to its element.
  for (const TensorView& tensor : read.tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % dtype_size(tensor.dtype), 0u)
        << tensor.name;
}

TEST(SafetensorsWriterTest, WritesTheCanonicalForm) {
  const TempFolder folder;
  const std::vector<uint8_t> memory{1, 2, 3, 4, 5, 6, 7};
  const auto bytes = std::as_bytes(std::span(memory));
  write_safetensors(folder.path() / "a", {{"z", DType::kU8, {1}, bytes.subspan(0, 1)},
                                          {"b", DType::kF32, {1}, bytes.subspan(1, 4)},
                                          {"a", DType::kF16, {1}, bytes.subspan(5, 2)}});
  const std::string json = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},)"
                           R"("z":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}})";
  const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(padded.size());
  expected += padded + "\x02\x03\x04\x05\x06\x07\x01";
  EXPECT_EQ(read_file(folder.path() / "a", 1000), expected);
  write_safetensors(folder.path() / "none", {});
  EXPECT_EQ(Safetensors(folder.path() / "none").tensors().size(), 0u);
}

TEST(SafetensorsWriterTest, RefusesWhatCannotBeRead) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  write_file(path, "old");
  const std::vector<uint8_t> memory(8);
  const auto bytes = std::as_bytes(std::span(memory));
  const auto complaint = [&](std::vector<TensorView> tensors, const Metadata& metadata = {}) {
    return message_of([&] { write_safetensors(path, std::move(tensors), metadata); });
  };
  const TensorView good{"a", DType::kF32, {2}, bytes};
  EXPECT_TRUE(says(complaint({good, good}), "two tensors named \"a\""));
  EXPECT_TRUE(
      says(complaint({{"__metadata__", DType::kF32, {2}, bytes}}), "cannot be named __metadata__"));
  EXPECT_TRUE(says(complaint({{"a", DType::kF32, {3}, bytes}}),
                   "has 8 bytes, its shape and dtype F32 need 12"));
  EXPECT_TRUE(says(complaint({{"a", DType::kF32, {-2, -1}, bytes}}), "a dimension of -2"));
  EXPECT_TRUE(says(complaint({{"a", DType::kF32, {1LL << 62, 4}, bytes}}), "overflows"));
  EXPECT_TRUE(says(complaint({{"a", DType::kU8, std::vector<int64_t>(65, 1), bytes.subspan(0, 1)}}),
                   "65 dimensions"));
  EXPECT_TRUE(says(complaint({{"\xff", DType::kF32, {2}, bytes}}), "not UTF-8"));
  EXPECT_TRUE(says(complaint({good}, {{"k", "\xff"}}), "not UTF-8"));
  EXPECT_EQ(read_file(path, 100), "old");
}

TEST(SafetensorsFolderTest, WritesOneFileWhenItFits) {
  const TempFolder folder;
  const Sample sample;
  write_safetensors_folder(folder.path(), sample.tensors, {{"format", "pt"}}, 1 << 20);
  EXPECT_TRUE(fs::exists(folder.path() / "model.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  const Safetensors read(folder.path());
  expect_same(read, sample.tensors);
  EXPECT_TRUE(says(message_of([&] { write_safetensors_folder(folder.path(), {}, {}, 1); }),
                   "already holds model.safetensors"));
}

struct Sharded {
  Sharded() { write_safetensors_folder(folder.path(), sample.tensors, {{"format", "pt"}}, 200); }
  fs::path index() const { return folder.path() / "model.safetensors.index.json"; }
  std::string complaint() const {
    return message_of([&] { Safetensors read(folder.path()); });
  }
  Sample sample;
  TempFolder folder;
};

TEST(SafetensorsFolderTest, WritesShardsWithAnIndex) {
  const Sharded sharded;
  const auto index = nlohmann::json::parse(read_file(sharded.index(), 1 << 20));
  uint64_t bytes = 0, elements = 0;
  for (const TensorView& tensor : sharded.sample.tensors) {
    bytes += tensor.bytes.size();
    elements += tensor.bytes.size() / dtype_size(tensor.dtype);
  }
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  EXPECT_EQ(index["metadata"]["total_parameters"], elements);
  std::map<std::string, uint64_t> sizes;
  for (const TensorView& tensor : sharded.sample.tensors)
    sizes[index["weight_map"][tensor.name].get<std::string>()] += tensor.bytes.size();
  EXPECT_GT(sizes.size(), 5u);
  // Within the limit, but for the one tensor that is larger than it.
  for (const auto& [name, size] : sizes) EXPECT_LE(size, 336u) << name;
  EXPECT_EQ(std::count_if(sizes.begin(), sizes.end(),
                          [](const auto& shard) { return shard.second > 200; }),
            3);
  ASSERT_LT(sizes.size(), 100u);
  const std::string count = (sizes.size() < 10 ? "0000" : "000") + std::to_string(sizes.size());
  EXPECT_TRUE(sizes.contains("model-00001-of-" + count + ".safetensors"));
  EXPECT_TRUE(sizes.contains("model-" + count + "-of-" + count + ".safetensors"));

  const Safetensors read(sharded.folder.path());
  expect_same(read, sharded.sample.tensors);
  EXPECT_EQ(read.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_TRUE(std::is_sorted(read.tensors().begin(), read.tensors().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
}

TEST(SafetensorsFolderTest, NamesOfShardsAndIndexMustMatch) {
  const Sharded sharded;
  const auto good = nlohmann::json::parse(read_file(sharded.index(), 1 << 20));
  const auto with = [&](const auto& change) {
    auto index = good;
    change(index["weight_map"]);
    write_file(sharded.index(), index.dump());
    return sharded.complaint();
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_TRUE(
      says(with([](auto& map) { map.erase("layer.3"); }), "holds tensor \"layer.3\", which"));
  EXPECT_TRUE(
      says(with([](auto& map) { map["more"] = map["layer.3"]; }), "tensor \"more\" is missing"));
  EXPECT_TRUE(says(with([](auto& map) { map["layer.1"] = map["layer.14"]; }), "layer.1\""));
  EXPECT_TRUE(
      says(with([](auto& map) { map["layer.3"] = "other.safetensors"; }), "layer.3\", which"));
  EXPECT_TRUE(says(with([](auto& map) { map["x"] = "zzz.safetensors"; }),
                   "zzz.safetensors: missing, although"));
  EXPECT_TRUE(says(with([](auto& map) { map["x"] = "../other/model.safetensors"; }),
                   "of the same folder expected"));
  EXPECT_TRUE(
      says(with([](auto& map) { map["x"] = "/etc/passwd"; }), "of the same folder expected"));
  EXPECT_TRUE(says(with([](auto& map) { map["x"] = std::string("a\0.safetensors", 14); }),
                   "is said to be in"));
  EXPECT_TRUE(says(with([](auto& map) { map["x"] = 3; }), "not the name of a file"));
  EXPECT_TRUE(says(with([](auto& map) { map = nlohmann::json::object(); }), "weight_map is empty"));
  EXPECT_TRUE(says(with([](auto& map) { map = 7; }), "\"weight_map\" object expected"));
}

TEST(SafetensorsFolderTest, RefusesABadIndex) {
  const Sharded sharded;
  const auto with = [&](const std::string& text) {
    write_file(sharded.index(), text);
    return sharded.complaint();
  };
  EXPECT_TRUE(says(with("["), "not valid JSON"));
  EXPECT_TRUE(says(with("[]"), "\"weight_map\" object expected"));
  EXPECT_TRUE(says(with("{}"), "\"weight_map\" object expected"));
  EXPECT_TRUE(says(with(R"({"weight_map":{"a":"m.safetensors","a":"n.safetensors"}})"),
                   "\"a\" appears twice"));
}

TEST(SafetensorsFolderTest, TellsWhatIsMissing) {
  const TempFolder folder;
  EXPECT_TRUE(
      says(message_of([&] { Safetensors read(folder.path()); }), "neither model.safetensors nor"));
  EXPECT_TRUE(says(message_of([&] { Safetensors read(folder.path() / "none"); }), "none"));
  EXPECT_TRUE(says(message_of([&] { write_safetensors_folder(folder.path() / "none", {}, {}, 1); }),
                   "none"));
  write_file(folder.path() / "model.safetensors", "");
  EXPECT_TRUE(says(message_of([&] { Safetensors read(folder.path()); }),
                   "0 bytes; a safetensors file has at least 8"));
}

TEST(SafetensorsTest, ViewsSurviveAMove) {
  const TempFolder folder;
  const Sample sample;
  write_safetensors(folder.path() / "a", sample.tensors);
  Safetensors first(folder.path() / "a");
  const Safetensors second = std::move(first);
  expect_same(second, sample.tensors);
}

}  // namespace
}  // namespace tempera::io
