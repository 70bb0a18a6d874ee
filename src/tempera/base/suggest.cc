#include "tempera/base/suggest.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tempera {
namespace {

// Names that are longer than any of ours are not compared: the work grows with the product.
constexpr size_t kMaxLength = 256;

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_before(b.size() + 1);
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_before, before);
    std::swap(before, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view given, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  size_t least = kMaxLength;
  for (const std::string& name : known) {
    if (given.size() > kMaxLength || name.size() > kMaxLength) continue;
    const size_t distance = edit_distance(given, name);
    // A third of the letters may be wrong; a name that was cut short is near too.
    const bool beginning = given.size() >= 3 && name.starts_with(given);
    const bool near =
        beginning || distance <= std::max<size_t>(1, std::min(given.size(), name.size()) / 3);
    if (!near || distance >= least) continue;
    least = distance;
    nearest = &name;
  }
  return nearest ? "; did you mean '" + *nearest + "'?" : std::string{};
}

std::string listed(std::span<const std::string> names) {
  constexpr size_t kMost = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

}  // namespace tempera
