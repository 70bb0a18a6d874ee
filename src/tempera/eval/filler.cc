#include <array>

#include "tempera/eval/haystack.h"

namespace tempera::eval {
namespace {

using Words = std::array<std::string_view, 16>;

constexpr Words kPeople = {"The baker",   "My neighbour",  "An old sailor", "The gardener",
                           "Her brother", "The schoolboy", "A carpenter",   "The librarian",
                           "Our cousin",  "The postwoman", "A quiet guest", "The shepherd",
                           "The miller",  "His daughter",  "The tailor",    "A young painter"};
constexpr Words kActs = {"carried a basket of apples", "was looking for the blue umbrella",
                         "mended a wooden chair",      "told a long story about the sea",
                         "waited for the evening bus", "planted beans along the fence",
                         "forgot to close the window", "wrote a letter to an aunt",
                         "counted the sheep again",    "polished the brass lamp",
                         "drank a cup of warm milk",   "folded the clean towels",
                         "sang an old song",           "read the newspaper aloud",
                         "swept the stone floor",      "fed the grey pigeons"};
constexpr Words kPlaces = {
    "near the harbour",    "behind the church",  "in the small kitchen", "under the chestnut",
    "by the river",        "at the corner shop", "on the market place",  "in the attic",
    "beside the old mill", "along the garden",   "at the bridge",        "in the yard",
    "on the top step",     "near the stable",    "in the front room",    "outside the village"};
constexpr Words kTimes = {
    "early in the morning",  "before lunch",        "while it rained",
    "after the storm",       "on a cold afternoon", "until it grew dark",
    "as on every Sunday",    "without any hurry",   "in the first days of spring",
    "when nobody was there", "late at night",       "during the long summer",
    "for most of the day",   "just before supper",  "once more",
    "with great care"};

std::string_view pick(const Words& words, data::RandomStream& random) {
  return words[random.below(static_cast<uint32_t>(words.size()))];
}

}  // namespace

std::string filler_sentence(data::RandomStream& random) {
  std::string sentence;
  for (const Words* words : {&kPeople, &kActs, &kPlaces, &kTimes}) {
    if (!sentence.empty()) sentence += ' ';
    sentence += pick(*words, random);
  }
  return sentence + '.';
}

std::string random_number(data::RandomStream& random, int64_t digits) {
  std::string number(1, static_cast<char>('1' + random.below(9)));
  while (static_cast<int64_t>(number.size()) < digits)
    number += static_cast<char>('0' + random.below(10));
  return number;
}

}  // namespace tempera::eval
