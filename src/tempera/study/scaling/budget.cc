#include "tempera/study/scaling/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "tempera/study/scaling/law.h"

namespace tempera::study::scaling {
namespace {

// Of the numbers of a law that nothing is known of yet: so that few cells have a determinant, too.
constexpr double kKnownBefore = 1e-6;

// Those that go into the same fits: of one context and norm.
using SliceKey = std::tuple<int64_t, nn::QkNorm>;

struct Group {
  std::vector<size_t> members;
  SliceKey slice;
  Five slopes{};
  double seconds = 0;
  bool stays = true;
};

std::vector<Group> groups_of(std::span<const Candidate> candidates) {
  using Key = std::tuple<Shape, int64_t, int64_t, nn::QkNorm, int64_t>;
  std::map<Key, size_t> known;
  std::vector<Group> groups;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Cell& cell = candidates[i].cell;
    const Key key{cell.shape, cell.tokens, cell.context, cell.qk_norm, cell.seed};
    const auto [place, is_new] = known.emplace(key, groups.size());
    if (is_new)
      groups.push_back(
          {.members = {},
           .slice = {cell.context, cell.qk_norm},
           .slopes = kUsualLaw.slopes(std::log(static_cast<double>(cell.shape.parameters())),
                                      std::log(static_cast<double>(cell.tokens)))});
    Group& group = groups[place->second];
    group.members.push_back(i);
    group.seconds += candidates[i].seconds;
  }
  return groups;
}

// The share of the information's determinant that goes with a group: s^T M^-1 s.
double leverage(const FiveByFive& information, const Five& slopes) {
  const auto solved = solve(information, slopes);
  if (!solved) return 1;
  double sum = 0;
  for (size_t i = 0; i < kFive; ++i) sum += slopes[i] * (*solved)[i];
  return std::clamp(sum, 0.0, 1.0 - 1e-12);
}

class Chooser {
 public:
  explicit Chooser(std::span<const Candidate> candidates) : groups_(groups_of(candidates)) {
    for (const Group& group : groups_) {
      auto& information = information_[group.slice];
      if (information[0][0] == 0)
        for (size_t i = 0; i < kFive; ++i) information[i][i] = kKnownBefore;
      add_square(information, group.slopes, 1);
      left_ += group.seconds;
    }
  }

  std::vector<bool> choose(size_t candidates, double seconds) {
    while (left_ > seconds)
      if (!drop_least()) break;
    std::vector<bool> stays(candidates);
    for (const Group& group : groups_)
      for (const size_t member : group.members) stays[member] = group.stays;
    return stays;
  }

 private:
  bool drop_least() {
    Group* least = nullptr;
    double least_worth = std::numeric_limits<double>::infinity();
    for (Group& group : groups_) {
      if (!group.stays || group.seconds <= 0) continue;
      const double loss = -std::log1p(-leverage(information_[group.slice], group.slopes));
      const double worth = loss / group.seconds;
      if (worth < least_worth) {
        least_worth = worth;
        least = &group;
      }
    }
    if (!least) return false;
    least->stays = false;
    left_ -= least->seconds;
    add_square(information_[least->slice], least->slopes, -1);
    return true;
  }

  std::vector<Group> groups_;
  std::map<SliceKey, FiveByFive> information_;
  double left_ = 0;
};

}  // namespace

std::vector<bool> choose(std::span<const Candidate> candidates, double seconds) {
  return Chooser(candidates).choose(candidates.size(), seconds);
}

}  // namespace tempera::study::scaling
