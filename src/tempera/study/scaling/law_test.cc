#include "tempera/study/scaling/law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tempera/data/random.h"
#include "tempera/study/scaling/savings.h"

namespace tempera::study::scaling {
namespace {

// Reaches the same losses with a share of the parameters.
Law with_fewer_parameters(Law law, double share) {
  law.log_a += law.alpha * std::log(share);
  return law;
}

const std::vector<double> kSizes = {1e6, 3e6, 8e6, 2e7, 6e7};

// Normal, from two uniform numbers.
double normal(data::RandomStream& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(2 * M_PI * random.uniform());
}

struct Noise {
  double of_model = 0;  // standard deviation of ln L
  double of_seed = 0;   // what the methods share
};

// Five sizes at 5, 10 and 20 tokens a parameter with three seeds each.
std::vector<LossCell> simulate(const std::vector<Law>& laws, const Noise& noise, uint64_t seed) {
  data::RandomStream random(seed, 1);
  std::vector<LossCell> cells;
  for (const double size : kSizes)
    for (const double each : {5.0, 10.0, 20.0}) {
      LossCell cell{size, each * size, std::vector<std::vector<double>>(laws.size())};
      for (int s = 0; s < 3; ++s) {
        const double shared = noise.of_seed * normal(random);
        for (size_t method = 0; method < laws.size(); ++method)
          cell.losses[method].push_back(laws[method].loss(cell.parameters, cell.tokens) *
                                        std::exp(shared + noise.of_model * normal(random)));
      }
      cells.push_back(std::move(cell));
    }
  return cells;
}

std::vector<Point> points_of(const std::vector<LossCell>& cells) {
  std::vector<Point> points;
  for (const auto& cell : cells)
    for (const double loss : cell.losses[0]) points.push_back({cell.parameters, cell.tokens, loss});
  return points;
}

TEST(Law, FindsItsConstantsWithoutNoise) {
  const auto fit = fit_law(points_of(simulate({kUsualLaw}, {}, 0)));
  ASSERT_TRUE(fit);
  EXPECT_NEAR(std::exp(fit->law.log_e), 1.69, 0.01);
  EXPECT_NEAR(fit->law.alpha, 0.34, 0.003);
  EXPECT_NEAR(fit->law.beta, 0.28, 0.003);
  EXPECT_NEAR(fit->law.loss(1e9, 2e10) / kUsualLaw.loss(1e9, 2e10), 1, 2e-3);
  EXPECT_LT(fit->objective, 1e-9);
}

TEST(Law, OneWildPointMovesItLittle) {
  auto points = points_of(simulate({kUsualLaw}, {.of_model = 0.001}, 3));
  points[4].loss *= 1.5;
  const auto fit = fit_law(points);
  ASSERT_TRUE(fit);
  for (const double size : kSizes)
    EXPECT_NEAR(fit->law.loss(size, 10 * size) / kUsualLaw.loss(size, 10 * size), 1, 3e-3);
}

TEST(Law, SolvesForSizeAndTokens) {
  const double loss = kUsualLaw.loss(2e7, 3e8);
  EXPECT_NEAR(*kUsualLaw.parameters_for(loss, 3e8), 2e7, 1);
  EXPECT_NEAR(*kUsualLaw.tokens_for(loss, 2e7), 3e8, 10);
  EXPECT_FALSE(kUsualLaw.parameters_for(1.6, 3e8));
}

TEST(Law, SlopesAreThoseOfDifferences) {
  const double x = std::log(5e6), y = std::log(4e7);
  const Five slopes = kUsualLaw.slopes(x, y);
  const auto moved = [&](double Law::*member) {
    Law law = kUsualLaw;
    law.*member += 1e-6;
    return (std::log(law.loss(5e6, 4e7)) - std::log(kUsualLaw.loss(5e6, 4e7))) / 1e-6;
  };
  double Law::*const members[] = {&Law::log_e, &Law::log_a, &Law::log_b, &Law::alpha, &Law::beta};
  for (size_t i = 0; i < kFive; ++i) EXPECT_NEAR(slopes[i], moved(members[i]), 1e-4) << i;
}

TEST(Law, TooFewPointsTellNothing) {
  auto points = points_of(simulate({kUsualLaw}, {}, 0));
  EXPECT_FALSE(fit_law(std::vector<Point>(points.begin(), points.begin() + 9)));  // one size
  std::vector<Point> few;
  for (size_t i = 0; i < points.size(); i += 9) few.push_back(points[i]);  // five points
  EXPECT_FALSE(fit_law(few));
  EXPECT_FALSE(fit_law({}));
}

TEST(Savings, AreFoundAndTold) {
  const std::vector<Law> laws = {kUsualLaw, with_fewer_parameters(kUsualLaw, 0.7)};
  const auto cells = simulate(laws, {.of_model = 0.001, .of_seed = 0.004}, 5);
  const LawStudy study = study_laws(cells, 2, 200);
  ASSERT_TRUE(study.savings[1]);
  const Saving& found = study.savings[1]->parameters;
  EXPECT_NEAR(found.share, 0.7, 0.06);
  EXPECT_TRUE(found.told);
  EXPECT_FALSE(found.extrapolated);
  EXPECT_TRUE(found.interval.holds(0.7));
  EXPECT_EQ(study.resamples, 200);
  EXPECT_EQ(study.parameters, 6e7);
  EXPECT_EQ(study.tokens, 1.2e9);
  EXPECT_NE(saving_text(found).find(" % fewer ("), std::string::npos);
}

TEST(Savings, NoDifferenceIsSaidWhereThereIsNone) {
  const auto cells = simulate({kUsualLaw, kUsualLaw}, {.of_model = 0.003, .of_seed = 0.003}, 2);
  const LawStudy study = study_laws(cells, 2, 200);
  ASSERT_TRUE(study.savings[1]);
  EXPECT_FALSE(study.savings[1]->parameters.told);
  EXPECT_NE(saving_text(study.savings[1]->parameters).find("no difference that can be told"),
            std::string::npos);
}

TEST(Savings, AreExtrapolatedBeyondWhatWasMeasured) {
  const auto cells =
      simulate({kUsualLaw, with_fewer_parameters(kUsualLaw, 1.5)}, {.of_model = 0.0005}, 4);
  const LawStudy study = study_laws(cells, 2, 100);
  ASSERT_TRUE(study.savings[1]);
  EXPECT_GT(study.savings[1]->parameters.share, 1.3);
  EXPECT_TRUE(study.savings[1]->parameters.extrapolated);
}

// Of a method that failed at the largest size, for which the others stand.
TEST(Savings, AreExtrapolatedWhereTheMethodWasNotMeasured) {
  auto cells =
      simulate({kUsualLaw, with_fewer_parameters(kUsualLaw, 0.8)}, {.of_model = 0.0005}, 4);
  EXPECT_FALSE(study_laws(cells, 2, 50).savings[1].value().parameters.extrapolated);
  for (LossCell& cell : cells)
    if (cell.parameters == kSizes.back())
      cell.losses[1].assign(3, std::numeric_limits<double>::quiet_NaN());
  const LawStudy study = study_laws(cells, 2, 50);
  ASSERT_TRUE(study.savings[1]);
  EXPECT_EQ(study.parameters, kSizes.back());
  EXPECT_NEAR(study.savings[1]->parameters.share, 0.8, 0.1);
  EXPECT_TRUE(study.savings[1]->parameters.extrapolated);
}

// The intervals are what they say: in simulated studies nearly all hold the true share, and they
// are not so wide that every number is in them.
TEST(Savings, IntervalsHoldTheTruth) {
  constexpr int kStudies = 30;
  int held = 0, told = 0;
  for (int i = 0; i < kStudies; ++i) {
    const std::vector<Law> laws = {kUsualLaw, with_fewer_parameters(kUsualLaw, 0.8)};
    const auto cells =
        simulate(laws, {.of_model = 0.002, .of_seed = 0.004}, static_cast<uint64_t>(100 + i));
    const LawStudy study = study_laws(cells, 2, 60);
    ASSERT_TRUE(study.savings[1]);
    held += study.savings[1]->parameters.interval.holds(0.8) ? 1 : 0;
    told += study.savings[1]->parameters.told ? 1 : 0;
  }
  EXPECT_GE(held, kStudies * 85 / 100);
  EXPECT_GE(told, kStudies * 85 / 100);
}

TEST(Savings, CellsWithoutALossAreLeftOut) {
  auto cells = simulate({kUsualLaw, with_fewer_parameters(kUsualLaw, 0.7)}, {.of_model = 0.001}, 6);
  cells[3].losses[1][0] = std::numeric_limits<double>::quiet_NaN();
  cells[7].losses[1] = {};
  const LawStudy study = study_laws(cells, 2, 50);
  ASSERT_TRUE(study.savings[1]);
  EXPECT_NEAR(study.savings[1]->parameters.share, 0.7, 0.06);
  EXPECT_TRUE(std::isnan(study.laws[1]->residuals[7]));
}

}  // namespace
}  // namespace tempera::study::scaling
