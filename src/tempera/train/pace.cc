#include "tempera/train/pace.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tempera::train {
namespace {

double peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace

Json Pace::report(dist::World& world, double waited) {
  const auto ranks = static_cast<size_t>(world.size());
  const auto own = static_cast<size_t>(world.rank());
  const auto steps = static_cast<double>(std::max<int64_t>(steps_, 1));
  const double idle = waited - std::exchange(waited_, waited);
  std::vector<double> values(3 * ranks);
  values[own] = (seconds_ - idle) / steps;
  values[ranks + own] = idle / steps;
  values[2 * ranks + own] = peak_bytes();
  values = world.sums(std::move(values));
  seconds_ = 0;
  steps_ = 0;

  const auto part = [&](size_t index) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(index * ranks);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(ranks));
  };
  std::vector<double> work = part(0);
  const auto slowest = std::ranges::max_element(work) - work.begin();
  double waits = 0;
  for (const double seconds : part(1)) waits += seconds / static_cast<double>(ranks);
  Json line{{"rank_seconds",
             {{"slowest", work[static_cast<size_t>(slowest)]},
              {"slowest_rank", slowest},
              {"median", 0.0},
              {"waited", waits}}},
            {"rank_memory", Json::array()}};
  std::ranges::nth_element(work, work.begin() + static_cast<std::ptrdiff_t>(ranks / 2));
  line["rank_seconds"]["median"] = work[ranks / 2];
  for (const double bytes : part(2)) line["rank_memory"].push_back(static_cast<int64_t>(bytes));
  return line;
}

}  // namespace tempera::train
