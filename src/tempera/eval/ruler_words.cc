#include <algorithm>
#include <cmath>
#include <numbers>

#include "tempera/base/error.h"
#include "tempera/eval/ruler.h"

namespace tempera::eval {
namespace {

using Ids = std::vector<int32_t>;

struct ListText {
  std::string preamble, question;
  std::string_view name;
};

// The sizes that a text may have.
struct Sizes {
  int64_t least, most;
};

// The largest text of a growing family that fits: write(size) gives the text, and texts grow with
// their size.
RulerCase fitted(const RulerSource& source, const ListText& list, int64_t room, const Sizes& sizes,
                 const std::function<std::string(int64_t size)>& write) {
  RulerCase made;
  const auto& tokenizer = source.tokenizer;
  tokenizer.encode(list.preamble, made.prompt, {.add_special = true, .parse_special = false});
  const Ids question = encode_behind(tokenizer, list.question);
  room -= static_cast<int64_t>(made.prompt.size() + question.size());
  Ids body;
  const auto tokens = [&](int64_t size) {
    body.clear();
    tokenizer.encode(write(size), body);
    return static_cast<int64_t>(body.size());
  };
  int64_t low = sizes.least, high = sizes.most + 1;  // low fits
  if (tokens(low) > room)
    throw UsageError(concat("--lengths: ", list.name, " needs a text of at least ",
                            tokens(low) - room, " tokens more"));
  while (high - low > std::max<int64_t>(1, low / 32)) {
    const int64_t middle = low + (high - low) / 2;
    (tokens(middle) <= room ? low : high) = middle;
  }
  tokens(low);
  made.prompt.insert(made.prompt.end(), body.begin(), body.end());
  made.prompt.insert(made.prompt.end(), question.begin(), question.end());
  return made;
}

std::string coded_word(data::RandomStream& random) {
  std::string word;
  for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + random.below(26));
  return word;
}

// No more of them than a text of so many tokens can hold.
int64_t bound(int64_t length, size_t available) {
  return std::min(length, static_cast<int64_t>(available));
}

}  // namespace

RulerCase make_common_words(const RulerSource& source, int64_t length, data::RandomStream& random) {
  constexpr size_t kCommon = 10;
  constexpr int64_t kNewTokens = 120;
  // As often as the original has them, in short texts less.
  const bool brief = length < 4096;
  const int common = brief ? 6 : 30, other = brief ? 1 : 3;
  std::vector<size_t> order(source.words.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(std::span(order));
  const data::RandomStream stream = random;
  const auto write = [&](int64_t others) {
    std::vector<size_t> list;
    for (size_t i = 0; i < kCommon + static_cast<size_t>(others); ++i)
      list.insert(list.end(), static_cast<size_t>(i < kCommon ? common : other), order[i]);
    data::RandomStream again = stream;
    again.shuffle(std::span(list));
    std::string text;
    for (size_t i = 0; i < list.size(); ++i)
      text += std::to_string(i + 1) + ". " + source.words[list[i]] + " ";
    return text;
  };
  auto made = fitted(source,
                     {"Below is a numbered list of words. Some of them stand in it more often than "
                      "the others. Remember those.\n",
                      "\nQuestion: Which 10 words stand most often in the list?\nAnswer: The 10 "
                      "words that stand most often in the list are:",
                      "ruler-cwe"},
                     length - kNewTokens, {1, bound(length, order.size() - kCommon)}, write);
  for (size_t i = 0; i < kCommon; ++i) made.references.push_back(source.words[order[i]]);
  return made;
}

RulerCase make_frequent_words(const RulerSource& source, int64_t length,
                              data::RandomStream& random) {
  constexpr int64_t kNewTokens = 50;
  constexpr double kSum = std::numbers::pi * std::numbers::pi / 6;  // of 1 / k^2
  constexpr int64_t kFewest = 53;  // with fewer, rounding makes the third word no more than others
  // The most frequent one is noise.
  std::vector<std::string> words{"..."};
  while (words.size() < static_cast<size_t>(std::max<int64_t>(length / 50, 8))) {
    auto word = coded_word(random);
    if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  const data::RandomStream stream = random;
  const auto write = [&](int64_t size) {
    std::vector<size_t> list;
    for (size_t i = 0; i < words.size(); ++i) {
      const auto rank = static_cast<double>(i + 1);
      list.insert(list.end(), static_cast<size_t>(static_cast<double>(size) / (rank * rank * kSum)),
                  i);
    }
    data::RandomStream again = stream;
    again.shuffle(std::span(list));
    std::string text;
    for (const size_t i : list) text += words[i] + " ";
    return text;
  };
  auto made = fitted(source,
                     {"Read the coded text below and count how often each of its coded words "
                      "stands in it.\n",
                      "\nQuestion: Which three coded words stand most often in the text? The dots "
                      "'...' are none.\nAnswer: The three coded words that stand most often in "
                      "the text are:",
                      "ruler-fwe"},
                     length - kNewTokens, {kFewest, length}, write);
  made.references = {words[1], words[2], words[3]};
  return made;
}

}  // namespace tempera::eval
