#include "tempera/adapt/measure.h"

#include <gtest/gtest.h>

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
  for (const char* length : {"4", "8"})
    EXPECT_EQ(measured["perplexity"][length]["tokens"], 4 + 3) << length;
}

}  // namespace
}  // namespace tempera::adapt
