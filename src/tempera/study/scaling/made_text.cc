#include "tempera/study/scaling/made_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::study::scaling {
namespace {

constexpr uint32_t kWords = 3000, kFollowers = 6, kTopics = 8;
constexpr std::array kOnsets = {"b", "d", "f", "g", "k", "l",  "m", "n",
                                "p", "r", "s", "t", "v", "st", "tr"};
constexpr std::array kVowels = {"a", "e", "i", "o", "u", "ai", "ou"};
constexpr std::array kCodas = {"", "", "n", "r", "s", "l"};

template <class List>
const char* pick(const List& list, data::RandomStream& random) {
  return list[random.below(static_cast<uint32_t>(list.size()))];
}

std::string make_word(data::RandomStream& random, uint32_t rank) {
  std::string word;
  const int syllables = 1 + (rank > 60 ? 1 : 0) + (rank > 900 ? 1 : 0);
  for (int i = 0; i < syllables; ++i)
    word += concat(pick(kOnsets, random), pick(kVowels, random), pick(kCodas, random));
  return word;
}

class Writer {
 public:
  Writer() : random_(data::derive_seed(0, "study/scaling/text"), 0) {
    for (uint32_t rank = 0; rank < kWords; ++rank) {
      words_.push_back(make_word(random_, rank));
      for (uint32_t i = 0; i < kFollowers; ++i) followers_.push_back(any_word());
    }
  }

  void add_paragraph(std::string& text) {
    std::array<uint32_t, kTopics> topics;
    for (uint32_t& topic : topics) topic = random_.below(kWords);
    const auto sentences = random_.between(3, 8);
    for (int64_t sentence = 0; sentence < sentences; ++sentence) {
      uint32_t word = any_word();
      const auto length = random_.between(4, 14);
      for (int64_t i = 0; i < length; ++i) {
        std::string next = words_[word];
        if (i == 0) next[0] = static_cast<char>(next[0] - 'a' + 'A');
        text += (i > 0 ? " " : "") + next;
        word = after(word, topics);
      }
      text += sentence + 1 < sentences ? ". " : ".\n\n";
    }
  }

 private:
  // The rank is the uniform power of the number of words: a frequency of about 1 / rank.
  uint32_t any_word() {
    const double rank = std::pow(static_cast<double>(kWords), random_.uniform());
    return std::min(kWords - 1, static_cast<uint32_t>(rank) - 1);
  }

  uint32_t after(uint32_t word, const std::array<uint32_t, kTopics>& topics) {
    const double what = random_.uniform();
    if (what < 0.5) return followers_[word * kFollowers + random_.below(kFollowers)];
    if (what < 0.75) return topics[random_.below(kTopics)];
    return any_word();
  }

  data::RandomStream random_;
  std::vector<std::string> words_;
  std::vector<uint32_t> followers_;
};

}  // namespace

std::string made_text(int64_t bytes) {
  Writer writer;
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) writer.add_paragraph(text);
  return text;
}

}  // namespace tempera::study::scaling
