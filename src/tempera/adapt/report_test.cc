#include "tempera/adapt/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tempera/base/testing.h"

namespace tempera::adapt {
namespace {

// Perplexities in windows of 64, early and late.
Measure measure_with(double early, double late, int64_t late_tokens = 1000) {
  Measure measure;
  measure.perplexity[64] = {
      .loss = std::log(early),
      .perplexity = early,
      .tokens = 1000 + late_tokens,
      .by_position = {{.first = 1, .last = 31, .tokens = 1000, .loss = std::log(early)},
                      {.first = 32, .last = 63, .tokens = late_tokens, .loss = std::log(late)}}};
  return measure;
}

CalibrationResult some_result() {
  CalibrationResult result;
  result.model = "folder/model";
  result.name = "model";
  result.learned = "head,value";
  result.numbers = 8;
  result.parameters = 12'345;
  result.length = 64;
  result.tokens = 500'000;
  result.seconds = 100;
  result.measures = {{"before", measure_with(10, 20)}, {"after", measure_with(9, 15)}};
  result.temperatures = {{.q = {0.5, 1.5}, .k = {}, .v = {1, 1.25}}};
  result.warnings = {"the text is short"};
  return result;
}

TEST(Report, PlacesThatGotWorseAreNamed) {
  const auto before = measure_with(10, 20);
  EXPECT_TRUE(worse_places(before, measure_with(9, 20)).empty());
  EXPECT_TRUE(worse_places(before, measure_with(9, 20.05)).empty()) << "that is chance";
  const auto lines = worse_places(before, measure_with(9, 21));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "windows of 64, 32-63 tokens seen: the perplexity grew from 20.00 to 21.00");
  EXPECT_TRUE(worse_places(measure_with(10, 20, 100), measure_with(9, 30, 100)).empty())
      << "so few tokens say nothing";
}

TEST(Report, TheTextHasBothModelsSideBySide) {
  const std::string text = to_text(some_result());
  EXPECT_TRUE(says(text, "head,value: 8 numbers learned of 12.3k, on 500k tokens at length 64"));
  EXPECT_TRUE(says(text, "before                 after\n"));
  EXPECT_TRUE(says(text, "32-63                                  20.00                 15.00\n"));
  EXPECT_TRUE(says(text, "temperature a_q         mean 1.000, 0.500 to 1.500\n"));
  EXPECT_EQ(text.find("a_k"), std::string::npos);
  EXPECT_TRUE(says(text, "warning: the text is short\n"));
}

TEST(Report, TheJsonHasTheSameNumbers) {
  const auto json = to_json(some_result());
  EXPECT_EQ(json["numbers"], 8);
  EXPECT_EQ(json["temperatures"][0]["v"], (std::vector<double>{1, 1.25}));
  EXPECT_TRUE(json["temperatures"][0]["k"].is_null());
  EXPECT_EQ(measure_of(json["measures"]["after"]).perplexity.at(64).by_position.at(1).tokens, 1000);
}

}  // namespace
}  // namespace tempera::adapt
