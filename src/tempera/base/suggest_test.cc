#include "tempera/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace tempera {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("steps", "steps"), 0U);
  EXPECT_EQ(edit_distance("step", "steps"), 1U);
  EXPECT_EQ(edit_distance("stesp", "steps"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(DidYouMean, NamesTheNearest) {
  const std::vector<std::string> known = {"seed", "steps", "threads", "temperature.layers"};
  EXPECT_EQ(did_you_mean("stepz", known), "; did you mean 'steps'?");
  EXPECT_EQ(did_you_mean("sed", known), "; did you mean 'seed'?");
  EXPECT_EQ(did_you_mean("temperture.layer", known), "; did you mean 'temperature.layers'?");
  EXPECT_EQ(did_you_mean("temp", known), "; did you mean 'temperature.layers'?");
}

TEST(DidYouMean, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(did_you_mean("banana", std::vector<std::string>{"seed", "steps"}), "");
  EXPECT_EQ(did_you_mean("x", std::vector<std::string>{}), "");
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'a'), std::vector<std::string>{"seed"}), "");
}

}  // namespace
}  // namespace tempera
