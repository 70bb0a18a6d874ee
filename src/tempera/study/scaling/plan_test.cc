#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/study/scaling/analysis.h"
#include "tempera/study/scaling/budget.h"
#include "tempera/study/scaling/estimate.h"
#include "tempera/study/scaling/tuning.h"

namespace tempera::study::scaling {
namespace {

// "" where nothing is thrown.
std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Plan plan_of(const std::string& more) {
  return make_plan("sizes = [\"1x32\", \"2x64\", \"3x96\"]\ntokens = [100000]\n" + more, "a grid",
                   {.text = {"text"}});
}

TEST(Shapes, AreReadInAllForms) {
  EXPECT_EQ(parse_shape("6x384"), (Shape{6, 384, 6}));
  EXPECT_EQ(parse_shape("2x96"), (Shape{2, 96, 3}));
  EXPECT_EQ(parse_shape("2x100x4"), (Shape{2, 100, 4}));
  for (const auto& [text, wanted] : std::map<std::string, double>{
           {"50k", 5e4}, {"1M", 1e6}, {"5M", 5e6}, {"20M", 2e7}, {"60M", 6e7}, {"0.1B", 1e8}}) {
    const Shape shape = parse_shape(text);
    EXPECT_NEAR(static_cast<double>(shape.parameters()) / wanted, 1, 0.15) << text;
    EXPECT_EQ(shape.width % shape.heads, 0) << text;
  }
  // The four matrices of attention, and three of an MLP of 1,024.
  EXPECT_EQ(parse_shape("6x384").parameters(), 6 * (4 * 384 * 384 + 3 * 384 * 1024));
}

TEST(Shapes, ThatCannotBeAreRefusedInWords) {
  const auto refused = [](const std::string& text) {
    return message_of([&] { parse_shape(text); });
  };
  EXPECT_NE(refused("2x100").find("heads of 32 columns do not divide a width of 100"),
            std::string::npos);
  EXPECT_NE(refused("2x100x3").find("3 heads do not divide a width of 100"), std::string::npos);
  EXPECT_NE(refused("large").find("LAYERSxWIDTH"), std::string::npos);
  EXPECT_NE(refused("0x64").find("'0' is no number"), std::string::npos);
  EXPECT_NE(refused("1x2x3x4").find("LAYERSxWIDTHxHEADS"), std::string::npos);
  EXPECT_NE(refused("").find("expected"), std::string::npos);
}

TEST(Grid, IsTheProductOfItsLists) {
  const Plan plan = plan_of("methods = [\"softmax\", \"focal:t=0.4\"]\nseeds = 2\ncontexts = [64]");
  ASSERT_EQ(plan.cells.size(), 3U * 2 * 2);
  EXPECT_EQ(plan.cells[0].method, "softmax");
  EXPECT_EQ(plan.cells[1].method, "focal:t=0.4");
  EXPECT_EQ(plan.cells[2].seed, 1);
  for (const Cell& cell : plan.cells) {
    EXPECT_EQ(cell.step_tokens % cell.context, 0);
    EXPECT_GE(cell.steps(), 500);
    const nn::ModelConfig model = model_of(cell);
    EXPECT_EQ(cell.shape.parameters() / cell.shape.width / cell.shape.layers,
              4 * model.width + 3 * model.size_of_mlp());
  }
}

TEST(Grid, OfNoneOrAMillionCellsIsRefused) {
  EXPECT_NE(
      message_of([] { make_plan("tokens = [1000]", "g", {.text = {"t"}}); }).find("sizes is empty"),
      std::string::npos);
  EXPECT_NE(message_of([] { plan_of("contexts = []"); }).find("contexts is empty"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              make_plan("sizes = [\"1x32\"]", "g", {.text = {"t"}});
            }).find("tokens-per-parameter is empty"),
            std::string::npos);
  EXPECT_NE(message_of([] { plan_of("methods = []"); }).find("none given"), std::string::npos);
  std::string many = "tokens-per-parameter = [";
  for (int i = 1; i <= 400; ++i) many += std::to_string(i) + ", ";
  EXPECT_NE(message_of([&] { plan_of(many + "]\nseeds = 1000"); }).find("cells; at most 10,000"),
            std::string::npos);
  EXPECT_NE(message_of([] { plan_of("size = [\"1x32\"]"); }).find("did you mean 'sizes'"),
            std::string::npos);
  EXPECT_NE(message_of([] { plan_of("qk-norms = [\"plane\"]"); }).find("plain"), std::string::npos);
  EXPECT_NE(message_of([] { plan_of("methods = [\"sofmax\"]"); }).find("softmax"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              make_plan("sizes = [\"1x32\"]\ntokens = [9]", "g", {.text = {}});
            }).find("no text given"),
            std::string::npos);
}

TEST(Plan, OfFilesTrainsModelsOfOneKindAlike) {
  const TempFolder folder;
  const auto refused = [&](const std::string& one, const std::string& other) {
    const std::string common = "sizes = [\"1x32\"]\ncontexts = [16]\n";
    const auto a = folder.path() / "a.toml", b = folder.path() / "b.toml";
    write_file(a, common + "methods = [\"softmax\"]\n" + one);
    write_file(b, common + "methods = [\"ssa\"]\n" + other);
    return message_of([&] { read_plan({a.string(), b.string()}, {.text = {"text"}}); });
  };
  const std::string less = "tokens = [100000]\nbatch-tokens = 16",
                    more = "tokens = [100000]\nbatch-tokens = 32";
  EXPECT_EQ(refused(less, more),
            "the files give models of 1x32x1 different batch-tokens or dtypes; give them the same, "
            "or another --out");
  EXPECT_NE(refused(less, less + "\ndtype = \"bf16\"").find("or dtypes"), std::string::npos);
  EXPECT_EQ(refused(less, less), "");
  EXPECT_EQ(refused(less, "tokens = [200000]\nbatch-tokens = 32"), "") << "these are other models";
  EXPECT_EQ(refused("tokens = [9000]\nbatch-tokens = 16", "tokens = [9000]\nbatch-tokens = 32"), "")
      << "so few tokens have small steps in both";
}

TEST(Jobs, HaveTheSameNameWhereverTheyAreMade) {
  const Job job{.cell = plan_of("").cells[0], .learning_rate = 0.00123};
  const Job again = job_of(nlohmann::ordered_json::parse(to_json(job).dump()));
  EXPECT_EQ(again, job);
  EXPECT_EQ(again.id(), job.id());
  Job other = job;
  other.learning_rate *= 2;
  EXPECT_NE(other.id(), job.id());
  JobResult result{.job = job};
  result.losses = {{64, 3.5}, {128, 3.75}};
  result.recall = {{64, 0.25}};
  result.tasks = {{"piqa", "acc", 0.5, 0.4, 0.6}};
  result.entropy = 1.5;
  result.curve = {{10, 5.0}};
  EXPECT_EQ(to_json(result_of(to_json(result), "f")).dump(), to_json(result).dump());
  EXPECT_THROW(result_of(nlohmann::ordered_json::object(), "f"), Error);
}

// Losses with their least at `best` times 3e-3 at a width of 128, in quarters of a square.
class Losses {
 public:
  Losses(const Plan& plan, double best) : plan_(plan), best_(best) {}

  // Does all jobs until no more come; gives how many there were.
  size_t run() {
    for (int round = 0; round < 10; ++round) {
      size_t added = 0;
      for (const Job& job : state().jobs) added += add(job) ? 1 : 0;
      if (added == 0) break;
    }
    return done_.size();
  }
  TuningState state() const {
    return tune(plan_, [this](const Job& job) -> const JobResult* {
      const auto found = done_.find(job.id());
      return found == done_.end() ? nullptr : &found->second;
    });
  }

 private:
  bool add(const Job& job) {
    const double usual = 3e-3 * std::sqrt(128 / static_cast<double>(job.cell.shape.width));
    const double off = std::log2(job.learning_rate / (best_ * usual));
    JobResult result{.job = job};
    result.losses = {{64, 4 + off * off / 4}};
    if (off > 3) result.outcome = Outcome::kDiverged;
    return done_.emplace(job.id(), result).second;
  }

  const Plan& plan_;
  double best_;
  std::map<std::string, JobResult> done_;
};

TEST(Tuning, FindsTheRateOfAParabolaAndChecksIt) {
  for (const double best : {0.1, 0.7, 1.0, 1.3, 6.0}) {
    const Plan plan = plan_of("methods = [\"softmax\"]");
    Losses losses(plan, best);
    losses.run();
    const TuningState state = losses.state();
    ASSERT_EQ(state.tunings.size(), 1U) << best;
    const Tuning& tuning = state.tunings[0];
    EXPECT_NEAR(tuning.constant / (best * 3e-3), 1, 0.02) << best;
    ASSERT_EQ(tuning.sweep.size(), 2U);
    ASSERT_TRUE(tuning.check);
    EXPECT_EQ(tuning.check->shape, parse_shape("3x96"));
    EXPECT_EQ(tuning.check->trials.size(), 3U);
    EXPECT_NEAR(tuning.rate_for(parse_shape("4x512")) / (best * 1.5e-3), 1, 0.02);
  }
}

TEST(Tuning, SaysWhatNoRateTrained) {
  const Plan plan = plan_of("methods = [\"softmax\"]\nqk-norms = [\"none\", \"plain\"]");
  Losses losses(plan, 1e-9);
  EXPECT_TRUE(left_out(plan, losses.state()).empty()) << "it is not known yet";
  losses.run();
  const TuningState state = losses.state();
  ASSERT_EQ(state.tunings.size(), 2U);
  EXPECT_EQ(state.tunings[0].rate_for(parse_shape("1x32")), 0);
  EXPECT_EQ(state.tunings[0].sweep[0].trials[0].outcome, Outcome::kDiverged);
  EXPECT_EQ(left_out(plan, state),
            (std::vector<std::string>{
                "no learning rate of softmax trained: 9 models left out",
                "no learning rate of softmax with QK-norm plain trained: 9 models left out"}));
  Losses good(plan, 1);
  good.run();
  EXPECT_TRUE(left_out(plan, good.state()).empty());
}

TEST(Tuning, BeginsWithItsSweepAndNoCell) {
  const Plan plan = plan_of("");
  Losses losses(plan, 1);
  EXPECT_TRUE(losses.state().tunings.empty());
  EXPECT_EQ(losses.state().jobs.size(), 2U * 2 * 3);  // methods, sizes, rates
  for (const Job& job : losses.state().jobs) EXPECT_EQ(job.purpose, Purpose::kSweep);
}

TEST(Tuning, IsLeftOutWhereTheRateIsGiven) {
  const TuningState state =
      tune(plan_of("learning-rate = 0.004"), [](const Job&) { return nullptr; });
  EXPECT_TRUE(state.jobs.empty());
  ASSERT_EQ(state.tunings.size(), 2U);
  EXPECT_DOUBLE_EQ(state.tunings[0].rate_for(parse_shape("4x512")), 0.002);
}

// Of a grid with seeds, the seeds of what many cells tell go first, and methods stay together.
TEST(Budget, DropsTheLeastInformativeFirst) {
  const Plan plan = make_plan(
      "sizes = [\"1x32\", \"2x64\", \"3x96\"]\ntokens-per-parameter = [5, 10, 20]\nseeds = 3",
      "a grid", {.text = {"text"}});
  std::vector<Candidate> candidates;
  double all = 0;
  for (const Cell& cell : plan.cells) {
    candidates.push_back({cell, static_cast<double>(cell.tokens * cell.shape.parameters())});
    all += candidates.back().seconds;
  }
  EXPECT_EQ(std::ranges::count(choose(candidates, all), true),
            static_cast<std::ptrdiff_t>(candidates.size()));
  const auto stays = choose(candidates, 0.6 * all);
  double left = 0;
  std::map<std::string, int> largest;
  for (size_t i = 0; i < stays.size(); ++i) {
    if (!stays[i]) continue;
    left += candidates[i].seconds;
    const Cell& cell = candidates[i].cell;
    if (cell.shape == parse_shape("3x96") && cell.tokens >= 20 * cell.shape.parameters() - 1000)
      ++largest[cell.method];
  }
  EXPECT_LE(left, 0.6 * all);
  EXPECT_GE(left, 0.2 * all);
  EXPECT_GE(largest["softmax"], 1);  // not the whole corner of the grid
  EXPECT_EQ(largest["softmax"], largest["ssa"]);
  EXPECT_EQ(std::ranges::count(choose(candidates, 0), true), 0);
}

TEST(Speeds, AreReadBackWhereTheyWereMeasured) {
  const Cell cell = plan_of("").cells[0];
  Speeds speeds;
  speeds.set(cell, 1e-5);
  Speeds again, elsewhere;
  again.load(speeds.dump(2, "cpu"), 2, "cpu");
  elsewhere.load(speeds.dump(2, "cpu"), 4, "cpu");
  EXPECT_TRUE(again.has(cell));
  EXPECT_FALSE(elsewhere.has(cell));
  again.load("torn {", 2, "cpu");
  EXPECT_GT(memory_estimate(cell, 256), 16.0 * static_cast<double>(cell.shape.parameters()));
}

// Losses of a law of the sizes, with a method that saves a third of the parameters.
std::vector<JobResult> made_results(const Plan& plan) {
  std::vector<JobResult> results;
  for (const Cell& cell : plan.cells) {
    const double saved = cell.method == "ssa" ? 1.5 : 1;
    const auto n = saved * static_cast<double>(cell.shape.parameters());
    const double loss =
        1.7 + 60 / std::pow(n, 0.34) + 80 / std::pow(static_cast<double>(cell.tokens), 0.28);
    JobResult result{.job = {.cell = cell, .learning_rate = 1e-3}};
    const double noise = 1 + 1e-4 * std::sin(static_cast<double>(results.size() * 7 + 1));
    const double entropy = 2 + 0.1 * static_cast<double>(cell.seed) + 1 / saved;
    result.losses = {{cell.context, loss * noise}, {2 * cell.context, loss * noise + entropy / 9}};
    result.recall = {{cell.context, 0.5}, {2 * cell.context, 0.25}};
    result.entropy = entropy;
    result.passes = 5;
    results.push_back(result);
  }
  return results;
}

TEST(Analysis, SaysWhatTheModelsSay) {
  const Plan plan = make_plan(
      "sizes = [\"1x32\", \"2x64\", \"3x96\", \"4x128\"]\ntokens-per-parameter = [5, 20, 80]\n"
      "seeds = 2\ncontexts = [32, 64, 128]",
      "a grid", {.text = {"text"}});
  auto results = made_results(plan);
  results[0].outcome = Outcome::kDiverged;
  results[0].reason = "the loss is NaN";
  const Analysis analysis = analyse(plan, results);
  ASSERT_EQ(analysis.slices.size(), 3U);
  ASSERT_TRUE(analysis.slices[1].laws.savings[1]);
  EXPECT_NEAR(analysis.slices[1].laws.savings[1]->parameters.share, 1 / 1.5, 0.02);
  EXPECT_TRUE(analysis.slices[1].laws.savings[1]->parameters.told);
  EXPECT_EQ(analysis.failures.size(), 1U);
  ASSERT_EQ(analysis.differences.size(), 4U * 3 * 3);
  for (const auto& difference : analysis.differences) EXPECT_LT(difference.mean, 0);
  EXPECT_EQ(analysis.differences[0].seeds.size(), 1U);  // the other diverged
  EXPECT_EQ(analysis.differences[1].seeds.size(), 2U);
  ASSERT_FALSE(analysis.context_gains.empty());
  EXPECT_NEAR(analysis.context_gains[0].slope, 0, 1e-3);
  ASSERT_TRUE(analysis.entropy_correlation);
  EXPECT_GT(analysis.entropy_correlation->low, 0);
  EXPECT_EQ(analysis.most_passes, 5);
  EXPECT_EQ(to_json(analysis).at("failures").size(), 1U);
}

TEST(Analysis, OfNothingIsEmpty) {
  const Analysis analysis = analyse(plan_of(""), {});
  EXPECT_TRUE(analysis.slices.empty());
  EXPECT_FALSE(analysis.entropy_correlation);
}

TEST(Analysis, RanksWithTies) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {10, 20, 90}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_NEAR(rank_correlation({1, 1, 2, 3}, {1, 2, 3, 4}), 0.9487, 1e-4);
}

}  // namespace
}  // namespace tempera::study::scaling
