#include "tempera/eval/translation.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tempera/base/error.h"
#include "tempera/text/unicode.h"

namespace tempera::eval {
namespace {

// What Python takes for a blank: four separators of ASCII more than Unicode does.
bool is_blank(char32_t code) { return text::is_space(code) || (code >= 0x1C && code <= 0x1F); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

void replace_each(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Calls take(word) for the parts between blanks.
template <class Take>
void for_each_word(std::string_view text, const Take& take) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = text::character_at(text, at);
    if (is_blank(code)) {
      if (at > begin) take(text.substr(begin, at - begin));
      begin = at + size;
    }
    at += size;
  }
  if (begin < text.size()) take(text.substr(begin));
}

std::string without_end_blanks(std::string text) {
  while (!text.empty() && is_blank(text::last_character(text).code))
    text.resize(text.size() - text::last_character(text).size);
  return text;
}

// Each step of the script reads the whole of what the one before wrote. None looks at more than
// one byte on either side, and no byte of a longer character is one of those asked for, so bytes
// do as well as characters.

// ASCII symbols stand alone, but for the apostrophe, the hyphen, the stop and the comma.
std::string with_symbols_apart(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool symbol = (c >= '{' && c <= '~') || (c >= '[' && c <= '`') ||
                        (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
                        (c >= ':' && c <= '@') || c == '/';
    symbol ? out.append({' ', c, ' '}) : out.append(1, c);
  }
  return out;
}

// Finds pairs of neighbours from left to right, no byte in two of them, and writes them another
// way.
template <class IsPair, class Write>
std::string with_pairs_replaced(std::string_view text, const IsPair& is_pair, const Write& write) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 < text.size() && is_pair(text[at], text[at + 1])) {
      write(out, text[at], text[at + 1]);
      at += 2;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string with_words_apart(std::string_view text) {
  const auto apart_behind = [](std::string& out, char first, char second) {
    out.append({first, ' ', second, ' '});
  };
  const auto apart_before = [](std::string& out, char first, char second) {
    out.append({' ', first, ' ', second});
  };
  std::string out = with_symbols_apart(text);
  out = with_pairs_replaced(
      out, [](char a, char b) { return !is_digit(a) && is_stop(b); }, apart_behind);
  out = with_pairs_replaced(
      out, [](char a, char b) { return is_stop(a) && !is_digit(b); }, apart_before);
  return with_pairs_replaced(
      out, [](char a, char b) { return is_digit(a) && b == '-'; }, apart_behind);
}

template <class Key>
using Counts = std::unordered_map<Key, int64_t>;

template <class Key>
int64_t matches(const Counts<Key>& counts, const Counts<Key>& reference) {
  int64_t sum = 0;
  for (const auto& [key, count] : counts)
    if (const auto found = reference.find(key); found != reference.end())
      sum += std::min(count, found->second);
  return sum;
}

// A blank joins the words: none has one inside.
Counts<std::string> word_ngrams(const std::vector<std::string>& words, size_t order) {
  Counts<std::string> counts;
  for (size_t at = 0; at + order <= words.size(); ++at) {
    std::string key = words[at];
    for (size_t i = 1; i < order; ++i) (key += ' ') += words[at + i];
    ++counts[key];
  }
  return counts;
}

Counts<std::u32string_view> character_ngrams(std::u32string_view text, size_t order) {
  Counts<std::u32string_view> counts;
  for (size_t at = 0; at + order <= text.size(); ++at) ++counts[text.substr(at, order)];
  return counts;
}

std::u32string characters_of(std::string_view sentence) {
  const std::string text = text::valid_utf8(sentence);
  std::u32string codes;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = text::character_at(text, at);
    if (!is_blank(code)) codes += code;
    at += size;
  }
  return codes;
}

int64_t ngrams_in(size_t size, size_t order) {
  return size >= order ? static_cast<int64_t>(size - order + 1) : 0;
}

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (size_t n = 0; n < kOrder; ++n) {
    matched[n] += other.matched[n];
    total[n] += other.total[n];
  }
  length += other.length;
  reference_length += other.reference_length;
  return *this;
}

double BleuCounts::score() const {
  if (std::ranges::all_of(matched, [](int64_t count) { return count == 0; })) return 0;
  double log_sum = 0;
  double smooth = 1;
  for (size_t n = 0; n < kOrder; ++n) {
    // Translations too short for any n-gram of this order.
    if (total[n] == 0) return 0;
    // An order without a match counts as half a match, the next one as a quarter, and so on.
    if (matched[n] == 0) smooth *= 2;
    const double share = matched[n] > 0 ? 100 * static_cast<double>(matched[n]) : 100 / smooth;
    log_sum += std::log(share / static_cast<double>(total[n]));
  }
  const double brevity =
      length < reference_length ? std::exp(1 - ratio(reference_length, length)) : 1;
  return brevity * std::exp(log_sum / static_cast<double>(kOrder));
}

ChrfCounts& ChrfCounts::operator+=(const ChrfCounts& other) {
  for (size_t n = 0; n < kOrder; ++n) {
    matched[n] += other.matched[n];
    total[n] += other.total[n];
    reference_total[n] += other.reference_total[n];
  }
  return *this;
}

double ChrfCounts::score() const {
  constexpr double kFactor = 4;  // beta = 2, squared
  double precision = 0, recall = 0, orders = 0;
  for (size_t n = 0; n < kOrder; ++n) {
    if (total[n] == 0 || reference_total[n] == 0) continue;
    precision += ratio(matched[n], total[n]);
    recall += ratio(matched[n], reference_total[n]);
    orders += 1;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + kFactor) * precision * recall / (kFactor * precision + recall);
}

std::vector<std::string> bleu_words(std::string_view sentence) {
  std::string text = without_end_blanks(text::valid_utf8(sentence));
  replace_each(text, "<skipped>", "");
  replace_each(text, "-\n", "");
  replace_each(text, "\n", " ");
  replace_each(text, "&quot;", "\"");
  replace_each(text, "&amp;", "&");
  replace_each(text, "&lt;", "<");
  replace_each(text, "&gt;", ">");
  std::vector<std::string> words;
  for_each_word(with_words_apart(concat(" ", text, " ")),
                [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

BleuCounts bleu_counts(std::string_view translation, std::string_view reference) {
  const auto words = bleu_words(translation), wanted = bleu_words(reference);
  BleuCounts counts{.length = static_cast<int64_t>(words.size()),
                    .reference_length = static_cast<int64_t>(wanted.size())};
  for (size_t n = 0; n < BleuCounts::kOrder; ++n) {
    counts.matched[n] = matches(word_ngrams(words, n + 1), word_ngrams(wanted, n + 1));
    counts.total[n] = ngrams_in(words.size(), n + 1);
  }
  return counts;
}

ChrfCounts chrf_counts(std::string_view translation, std::string_view reference) {
  const auto given = characters_of(translation), wanted = characters_of(reference);
  ChrfCounts counts;
  for (size_t n = 0; n < ChrfCounts::kOrder; ++n) {
    counts.matched[n] = matches(character_ngrams(given, n + 1), character_ngrams(wanted, n + 1));
    counts.reference_total[n] = ngrams_in(wanted.size(), n + 1);
    // Where the reference has none, those of the translation are no fault of it.
    if (counts.reference_total[n] > 0) counts.total[n] = ngrams_in(given.size(), n + 1);
  }
  return counts;
}

TranslationScores score_translations(std::span<const std::string> translations,
                                     std::span<const std::string> references) {
  TEMPERA_CHECK(translations.size() == references.size() && !references.empty(),
                translations.size(), " translations and ", references.size(),
                " references given; one reference for each translation expected, at least one");
  TranslationScores scores{.sentences = static_cast<int64_t>(translations.size())};
  BleuCounts bleu;
  ChrfCounts chrf;
  for (size_t i = 0; i < translations.size(); ++i) {
    scores.bleu_counts.push_back(bleu_counts(translations[i], references[i]));
    scores.chrf_counts.push_back(chrf_counts(translations[i], references[i]));
    bleu += scores.bleu_counts.back();
    chrf += scores.chrf_counts.back();
  }
  scores.bleu = bleu.score();
  scores.chrf = chrf.score();
  return scores;
}

}  // namespace tempera::eval
