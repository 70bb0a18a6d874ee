#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/adapt/report.h"

// What the owner of a calibrated model wants to know, in sentences.
namespace tempera::adapt {

std::string fixed(double value, int decimals);
// "88 (79-94)"
std::string interval_text(const eval::Estimate& estimate, int decimals);
eval::Estimate in_percent(const eval::Estimate& share);

// How many times the perplexity is that of before, on the same text: the interval draws the blocks
// of text again, for both models the same ones. Unset where the blocks are not the same, and of a
// single one, which has no spread.
std::optional<eval::Estimate> perplexity_ratio(const eval::TextScores& before,
                                               const eval::TextScores& after);

// Questions and answers: how far it reads, what it costs at short lengths, which part did the work,
// whether it is safe to use.
std::vector<std::pair<std::string, std::string>> owner_answers(const CalibrationResult& result);

}  // namespace tempera::adapt
