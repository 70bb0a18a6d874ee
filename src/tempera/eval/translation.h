#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// How near translations are to references: BLEU and chrF, with the numbers that sacrebleu gives by
// default (signatures "tok:13a|smooth:exp" and "nc:6|nw:0|space:no"). No torch.
namespace tempera::eval {

// What BLEU needs of one sentence; the counts of a corpus are the sums of its sentences'.
struct BleuCounts {
  static constexpr size_t kOrder = 4;

  std::array<int64_t, kOrder> matched{};  // n-grams of the translation that the reference has too
  std::array<int64_t, kOrder> total{};    // n-grams of the translation
  int64_t length = 0;                     // words of the translation
  int64_t reference_length = 0;

  BleuCounts& operator+=(const BleuCounts& other);
  double score() const;  // 0 to 100
};

// The same for chrF: n-grams of characters, blanks left out.
struct ChrfCounts {
  static constexpr size_t kOrder = 6;

  std::array<int64_t, kOrder> matched{};
  std::array<int64_t, kOrder> total{};
  std::array<int64_t, kOrder> reference_total{};

  ChrfCounts& operator+=(const ChrfCounts& other);
  double score() const;  // 0 to 100; recall weighs twice as much as precision
};

BleuCounts bleu_counts(std::string_view translation, std::string_view reference);
ChrfCounts chrf_counts(std::string_view translation, std::string_view reference);

struct TranslationScores {
  double bleu = 0;
  double chrf = 0;
  int64_t sentences = 0;
  // Of each sentence, for intervals.
  std::vector<BleuCounts> bleu_counts = {};
  std::vector<ChrfCounts> chrf_counts = {};
};

// One reference for each translation; throws unless both have the same number, at least one.
TranslationScores score_translations(std::span<const std::string> translations,
                                     std::span<const std::string> references);

// The words that BLEU compares: those of the script mteval-v13a.
std::vector<std::string> bleu_words(std::string_view sentence);

}  // namespace tempera::eval
