#include "tempera/dist/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "tempera/base/error.h"

namespace tempera::dist {
namespace {

std::optional<Place> place_of(const std::map<std::string, std::string>& variables) {
  return place_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  try {
    place_of(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Environment, NobodyPlacedAnOrdinaryProcess) {
  EXPECT_FALSE(place_of({}));
  // In a batch script Slurm's variables are there although nobody started ranks.
  EXPECT_FALSE(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST(Environment, TorchrunSaysEverything) {
  const auto place = place_of({{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "1234"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RUN_ID", "job"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 4);
  EXPECT_EQ(place->address, "node0");
  EXPECT_EQ(place->port, 1234);
  EXPECT_TRUE(place->hosted);
  EXPECT_TRUE(place->elastic);
}

TEST(Environment, SlurmSaysTheRestWhereAnAddressIsGiven) {
  const auto place = place_of({{"MASTER_ADDR", "node0"},
                               {"SLURM_PROCID", "3"},
                               {"SLURM_NTASKS", "4"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_NTASKS_PER_NODE", "2"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->port, 29500);
  EXPECT_FALSE(place->hosted);
}

TEST(Environment, RanksAreOnOneMachineOnlyWhereTheAddressSaysSo) {
  const auto local_size = [](const char* address) {
    return place_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}})->local_size;
  };
  EXPECT_EQ(local_size("127.0.0.1"), 2);
  EXPECT_EQ(local_size("localhost"), 2);
  EXPECT_EQ(local_size("node0"), 1);
  EXPECT_EQ(local_size("10.0.0.1"), 1);
  const auto slurm = place_of({{"MASTER_ADDR", "node0"},
                               {"SLURM_PROCID", "1"},
                               {"SLURM_NTASKS", "2"},
                               {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(slurm->local_size, 1);
}

TEST(Environment, ContradictionsAreNamed) {
  EXPECT_NE(error_of({{"RANK", "1"}}).find("WORLD_SIZE is missing"), std::string::npos);
  EXPECT_NE(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR"), std::string::npos);
  EXPECT_NE(
      error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).find("rank 2 of 2"),
      std::string::npos);
  EXPECT_NE(error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK is 'x'"), std::string::npos);
  EXPECT_NE(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}})
          .find("from 1 to 65535"),
      std::string::npos);
}

}  // namespace
}  // namespace tempera::dist
