#include "tempera/adapt/answers.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/eval/bootstrap.h"

namespace tempera::adapt {
namespace {

using eval::Estimate;

// What is found of less than this share cannot be relied on.
constexpr double kFound = 0.5;

std::string percent(const Estimate& share) { return interval_text(in_percent(share), 0) + " %"; }

// The longest length up to which the interval lies above the bound at every length; 0: none.
int64_t reads_up_to(const eval::Grid& grid) {
  int64_t longest = 0;
  for (size_t i = 0; i < grid.lengths.size(); ++i) {
    if (grid.at_length(i).low <= kFound) break;
    longest = grid.lengths[i];
  }
  return longest;
}

std::string reach_text(int64_t length) {
  return length > 0 ? concat("up to ", length, " tokens") : "at no length that was measured";
}

std::string how_far(const CalibrationResult& result) {
  const Measure &before = result.measures[0].second, &after = result.measures[1].second;
  if (!after.passkey)
    return "Not measured: no passkeys were asked for (--passkey-cases, --eval-lengths).";
  const auto& grid = *after.passkey;
  const size_t last = grid.lengths.size() - 1;
  return concat("It finds more than half of the passkeys, beyond chance, ",
                reach_text(reads_up_to(grid)), "; before ",
                reach_text(reads_up_to(*before.passkey)), ". At ", grid.lengths[last],
                " tokens it finds ", percent(grid.at_length(last)), ", before ",
                percent(before.passkey->at_length(last)), ".");
}

std::string cost_text(const CalibrationResult& result) {
  const Measure &before = result.measures[0].second, &after = result.measures[1].second;
  const auto& [length, scores] = *before.perplexity.begin();
  const auto ratio = perplexity_ratio(scores, after.perplexity.at(length));
  std::string text =
      concat("In windows of ", length, " tokens the perplexity went from ",
             fixed(scores.perplexity, 2), " to ", fixed(after.perplexity.at(length).perplexity, 2));
  if (ratio) {
    text += concat(", ", interval_text(*ratio, 3), " times what it was: ");
    text += ratio->low > 1    ? "worse"
            : ratio->high < 1 ? "better"
                              : "no difference that can be told";
  }
  text += ".";
  if (after.passkey)
    text += concat(" Passkeys found at ", after.passkey->lengths[0],
                   " tokens: ", percent(after.passkey->at_length(0)), ", before ",
                   percent(before.passkey->at_length(0)), ".");
  return text;
}

std::string reached(const Measure& measured) {
  const auto& [length, scores] = *measured.perplexity.rbegin();
  std::string text = concat("perplexity ", fixed(scores.perplexity, 2));
  if (measured.passkey) {
    const auto& lengths = measured.passkey->lengths;
    text += concat(", passkeys of ", lengths.back(), " tokens ",
                   percent(measured.passkey->at_length(lengths.size() - 1)));
  }
  return text;
}

std::string which_part(const CalibrationResult& result) {
  if (result.measures.size() <= 2)
    return "Not measured: --controls all learns from the same tokens without the other parts.";
  const int64_t length = result.measures[0].second.perplexity.rbegin()->first;
  std::string text =
      concat("At ", length, " tokens: ", result.learned, " ", reached(result.measures[1].second));
  for (size_t i = 2; i < result.measures.size(); ++i)
    text += concat("; ", result.measures[i].first, " ", reached(result.measures[i].second));
  return text + ".";
}

std::string is_safe(const CalibrationResult& result) {
  const auto worse = worse_places(result.measures[0].second, result.measures[1].second);
  std::string text =
      worse.empty() ? "No length and no range of positions got worse on the text that was measured."
                    : concat("Some places got worse: ", worse.front(),
                             worse.size() > 1 ? concat("; and ", worse.size() - 1, " more below")
                                              : std::string(),
                             ".");
  text += result.folds ? " It folds into an ordinary checkpoint."
                       : " It does not fold: other programs cannot run it.";
  return text + " Measure your own tasks before you rely on it (tempera eval --task ruler).";
}

}  // namespace

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

std::string interval_text(const Estimate& estimate, int decimals) {
  return concat(fixed(estimate.value, decimals), " (", fixed(estimate.low, decimals), "-",
                fixed(estimate.high, decimals), ")");
}

Estimate in_percent(const Estimate& share) {
  return {.value = 100 * share.value,
          .standard_error = 100 * share.standard_error,
          .low = 100 * share.low,
          .high = 100 * share.high};
}

std::optional<Estimate> perplexity_ratio(const eval::TextScores& before,
                                         const eval::TextScores& after) {
  const auto &a = before.blocks, &b = after.blocks;
  if (a.size() < 2 || a.size() != b.size()) return std::nullopt;
  std::vector<double> places;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].tokens != b[i].tokens) return std::nullopt;
    places.push_back(static_cast<double>(i));
  }
  return eval::bootstrap(places, [&](std::span<const double> drawn) {
    double difference = 0, tokens = 0;
    for (const double place : drawn) {
      const auto i = static_cast<size_t>(place);
      difference += b[i].loss - a[i].loss;
      tokens += static_cast<double>(a[i].tokens);
    }
    return std::exp(difference / tokens);
  });
}

std::vector<std::pair<std::string, std::string>> owner_answers(const CalibrationResult& result) {
  return {{"How far does it read now?", how_far(result)},
          {"What did it cost at short lengths?", cost_text(result)},
          {"Which part did the work?", which_part(result)},
          {"Is it safe to use?", is_safe(result)}};
}

}  // namespace tempera::adapt
