#include "tempera/train/shards.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/testing.h"
#include "tempera/data/testing.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

// A tensor of 10 numbers in stretches of so many.
StretchMap stretch(int64_t begin, int64_t length) {
  return {{"w.first", {torch::arange(10.0).narrow(0, begin, length).clone(), begin, {2, 5}}}};
}

StretchMap empty_stretch(int64_t begin, int64_t length) {
  return {{"w.first", {torch::full({length}, -1.0), begin, {2, 5}}}};
}

Json three_ranks(const std::filesystem::path& folder) {
  Json shards = Json::array();
  for (const auto& [begin, length] : {std::pair{0, 4}, {4, 4}, {8, 2}})
    shards.push_back(
        write_shard(folder, concat("optimizer-", begin, ".safetensors"), stretch(begin, length)));
  return {{"shards", shards}};
}

TEST(Shards, AnyNumberOfRanksReadsThoseOfAnother) {
  const TempFolder folder;
  const Json state = three_ranks(folder.path());
  for (const auto& [begin, length] : {std::pair{0, 10}, {0, 5}, {5, 5}, {3, 2}, {7, 3}}) {
    const StretchMap wanted = empty_stretch(begin, length);
    read_stretches(folder.path(), state, wanted);
    EXPECT_TRUE(
        torch::equal(wanted.at("w.first").values, torch::arange(10.0).narrow(0, begin, length)));
  }
}

TEST(Shards, ManyRanksReadTheFileOfOne) {
  const TempFolder folder;
  write_shard(folder.path(), kOptimizerFile,
              whole({{"w.first", torch::arange(10.0).view({2, 5})}}));
  const StretchMap wanted = empty_stretch(3, 4);
  read_stretches(folder.path(), Json::object(), wanted);
  EXPECT_TRUE(torch::equal(wanted.at("w.first").values, torch::arange(10.0).narrow(0, 3, 4)));
}

TEST(Shards, WhatDoesNotFitIsNamed) {
  const TempFolder folder;
  Json state = three_ranks(folder.path());
  const auto error = [&](const StretchMap& wanted) {
    return message_of([&] { read_stretches(folder.path(), state, wanted); });
  };
  EXPECT_NE(error({{"v.first", {torch::zeros({1}), 0, {1}}}}).find("lacks 'v.first'"),
            std::string::npos);
  EXPECT_NE(error({{"w.first", {torch::zeros({2}), 0, {5, 2}}}}).find("expected"),
            std::string::npos);
  EXPECT_NE(error({{"w.first", {torch::zeros({2}, torch::kDouble), 0, {2, 5}}}}).find("expected"),
            std::string::npos);
  state["shards"].erase(1);
  EXPECT_NE(error(empty_stretch(2, 4)).find("2 of 4 numbers are missing"), std::string::npos);
  state["shards"][0]["tensors"]["w.first"]["begin"] = 9;
  EXPECT_NE(error(empty_stretch(2, 4)).find("ends behind its end"), std::string::npos);
}

}  // namespace
}  // namespace tempera::train
