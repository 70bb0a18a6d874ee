#include "tempera/bench/memory.h"

#include <gtest/gtest.h>

#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

TEST(PeakBytes, CountsWhatIsHeldAtOnce) {
  auto before = torch::zeros({1 << 20});
  const int64_t peak = peak_bytes([&] {
    { const auto first = torch::zeros({1000}); }
    const auto second = torch::zeros({3000});
    const auto third = torch::zeros({500});
    before.reset();
  });
  EXPECT_GE(peak, 3500 * 4);
  EXPECT_LT(peak, 4000 * 4);
  EXPECT_EQ(peak_bytes([] {}), 0);
}

TEST(PeakBytes, SeesTheBackwardPass) {
  const auto x = torch::ones({1000}, torch::requires_grad());
  const int64_t peak = peak_bytes([&] { torch::autograd::grad({(x * x).sum()}, {x}); });
  EXPECT_GE(peak, 2 * 1000 * 4);
}

TEST(ResidentPeak, RemembersWhatIsGone) {
  const int64_t before = resident_bytes();
  const ResidentPeak peak;
  { const auto gone = torch::ones({16 << 20}); }
  EXPECT_GE(peak.bytes(), before + (60 << 20));
  const ResidentPeak again;
  EXPECT_LT(again.bytes(), before + (60 << 20));
}

}  // namespace
}  // namespace tempera::bench
