#include "tempera/adapt/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tempera/nn/testing_model.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

TEST(Measure, ADocumentOfOneTokenEndsNothing) {
  const auto model = nn::moved_model(nn::tiny_config());
  const HeldOutText text{.documents = {{1, 2, 3, 4, 5}, {6}, {}, {7, 8, 9, 1}}};
  const MeasureOptions options{.lengths = {4, 8}, .tokens = 10, .passkey = {.cases = 0}};
  const auto measured = measure(*model, text::ByteTokenizer(), text, options, [](double) {});
  for (const int64_t length : {4, 8})
    EXPECT_EQ(measured.perplexity.at(length).tokens, 4 + 3) << length;
}

TEST(Measure, ComesBackFromJson) {
  Measure measure;
  measure.perplexity[16] = {.loss = 1.5,
                            .perplexity = 4.48,
                            .tokens = 20,
                            .by_position = {{.first = 1, .last = 15, .tokens = 20, .loss = 1.5}}};
  auto grid = eval::Grid::empty("passkey", {512, 1024}, {0.25, 0.75});
  for (auto& cell : grid.cells) cell.cases = cell.texts = 4;
  grid.cells.back().hits = 3;
  measure.passkey = grid;
  const auto json = to_json(measure);
  EXPECT_EQ(to_json(measure_of(json)), json);
  measure.passkey.reset();
  EXPECT_FALSE(measure_of(to_json(measure)).passkey);
}

TEST(Measure, ALossThatIsNotFiniteComesBackAsSuch) {
  Measure measure;
  measure.perplexity[16] = {
      .loss = std::nan(""), .perplexity = std::nan(""), .tokens = 1, .by_position = {}};
  const auto back = measure_of(nlohmann::ordered_json::parse(to_json(measure).dump()));
  EXPECT_TRUE(std::isnan(back.perplexity.at(16).loss));
}

}  // namespace
}  // namespace tempera::adapt
