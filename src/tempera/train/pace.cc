#include "tempera/train/pace.h"

#include <sys/resource.h>

#include <algorithm>
#include <vector>

namespace tempera::train {
namespace {

double peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024 * static_cast<double>(usage.ru_maxrss);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Json Pace::report(dist::World& world) {
  const auto ranks = static_cast<size_t>(world.size());
  const auto own = static_cast<size_t>(world.rank());
  const auto steps = static_cast<double>(std::max<int64_t>(steps_, 1));
  std::vector<double> values(3 * ranks);
  values[own] = (seconds_ - waited_) / steps;
  values[ranks + own] = waited_ / steps;
  values[2 * ranks + own] = peak_bytes();
  values = world.sums(std::move(values));
  *this = Pace();

  const auto part = [&](size_t index) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(index * ranks);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(ranks));
  };
  const std::vector<double> work = part(0);
  const auto slowest = std::ranges::max_element(work) - work.begin();
  double waits = 0;
  for (const double seconds : part(1)) waits += seconds / static_cast<double>(ranks);
  Json line{{"rank_seconds",
             {{"slowest", work[static_cast<size_t>(slowest)]},
              {"slowest_rank", slowest},
              {"median", median(work)},
              {"waited", waits}}},
            {"rank_memory", Json::array()}};
  for (const double bytes : part(2)) line["rank_memory"].push_back(static_cast<int64_t>(bytes));
  return line;
}

}  // namespace tempera::train
