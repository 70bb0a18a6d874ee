#include "tempera/eval/ruler.h"

#include <algorithm>
#include <array>
#include <set>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

namespace tempera::eval {
namespace {

// Tokens of an answer, as the original has them.
constexpr int64_t kNeedleTokens = 128, kChainTokens = 30, kCommonTokens = 120, kFrequentTokens = 50;
constexpr int64_t kAssociationTokens = 32;
constexpr size_t kMostWords = 20'000;
constexpr size_t kLongestWord = 10, kShortestWord = 4;

constexpr std::string_view kNoise =
    "The river runs to the sea. The road goes over the hill. The day is long. On we walk, and on "
    "again.\n";

constexpr std::array<std::string_view, 32> kQualities = {
    "quiet", "early",  "hollow", "clever", "gentle", "narrow", "hasty", "solemn",
    "brisk", "tender", "dusty",  "loyal",  "humble", "frozen", "sandy", "nimble",
    "vivid", "stern",  "mellow", "rusty",  "plain",  "jolly",  "wary",  "supple",
    "blunt", "ample",  "foggy",  "lively", "polite", "rugged", "sober", "tidy"};
constexpr std::array<std::string_view, 32> kThings = {
    "lantern", "harbour", "pebble",  "orchard", "kettle", "meadow", "anchor",  "thimble",
    "violin",  "compass", "bramble", "chimney", "saddle", "beacon", "marble",  "cottage",
    "feather", "hammock", "ladder",  "mirror",  "needle", "paddle", "quarry",  "ribbon",
    "spindle", "trellis", "urn",     "valley",  "wagon",  "drawer", "blanket", "glacier"};

enum class Word { kName, kNumber, kCode };

std::string code(data::RandomStream& random) {
  std::string text;
  for (const int size : {8, 4, 4, 4, 12}) {
    if (!text.empty()) text += '-';
    for (int i = 0; i < size; ++i) text += "0123456789abcdef"[random.below(16)];
  }
  return text;
}

std::string word_of(Word kind, data::RandomStream& random) {
  if (kind == Word::kNumber) return random_number(random, 7);
  if (kind == Word::kCode) return code(random);
  return std::string(kQualities[random.below(kQualities.size())]) + "-" +
         std::string(kThings[random.below(kThings.size())]);
}

std::string listed_words(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// Values of keys, of which some are asked for.
struct Needles {
  int keys = 1, values = 1, queries = 1;
  Word key = Word::kName, value = Word::kNumber;
};

struct NeedleText {
  std::vector<std::string> sentences, asked;
  std::string preamble, question;
  std::vector<std::string> references;
};

std::string kind_text(Word value, bool several) {
  return std::string(value == Word::kCode ? "code" : "number") + (several ? "s" : "");
}

std::string sentence(const Needles& needles, const std::string& key, const std::string& value) {
  return "One secret " + kind_text(needles.value, false) + " of " + key + " is: " + value + ".";
}

NeedleText needle_text(const Needles& needles, data::RandomStream& random) {
  NeedleText text;
  std::set<std::string> used;
  while (static_cast<int>(used.size()) < needles.keys) {
    const auto key = word_of(needles.key, random);
    if (!used.insert(key).second) continue;
    const bool wanted = static_cast<int>(text.asked.size()) < needles.queries;
    if (wanted) text.asked.push_back(key);
    for (int i = 0; i < needles.values; ++i) {
      const auto value = word_of(needles.value, random);
      text.sentences.push_back(sentence(needles, key, value));
      if (wanted) text.references.push_back(value);
    }
  }
  random.shuffle(std::span(text.sentences));
  const bool several = text.references.size() > 1;
  const auto kind = kind_text(needles.value, several), keys = listed_words(text.asked);
  text.preamble = std::string(several ? "Some secret " : "A secret ") + kind +
                  (several ? " are" : " is") +
                  " hidden in the text below. Remember what you read, you will be asked for it.\n";
  text.question = std::string("\nQuestion: ") +
                  (several ? "What are all the secret " : "What is the secret ") + kind + " of " +
                  keys + " that the text mentions?\nAnswer: The secret " + kind + " of " + keys +
                  " that the text mentions " + (several ? "are" : "is");
  return text;
}

// Something has to stand behind the question for hide() to leave room for.
constexpr const char* kSomeAnswer = " 0";

RulerCase hidden(const RulerSource& source, const Haystack& hay, const HiddenText& text,
                 std::vector<std::string> references, int64_t room, data::RandomStream& random) {
  auto requests = hide(text, hay, source.tokenizer, room, random, /*group=*/0);
  return {std::move(requests.at(0).context), std::move(references)};
}

RulerCase in_text(const RulerSource& source, const Haystack& hay, const Needles& needles,
                  int64_t length, data::RandomStream& random) {
  auto text = needle_text(needles, random);
  HiddenText hiding{
      .preamble = text.preamble, .needles = {}, .questions = {{text.question, kSomeAnswer}}};
  for (const auto& one : text.sentences) hiding.needles.push_back({random.uniform(), " " + one});
  return hidden(source, hay, hiding, std::move(text.references), length - kNeedleTokens, random);
}

// Among others of its kind, a line each.
RulerCase among_needles(const RulerSource& source, const Needles& needles, int64_t length,
                        data::RandomStream& random) {
  auto text = needle_text(needles, random);
  const auto encoded = [&](const std::string& line) {
    return encode_behind(source.tokenizer, "\n" + line);
  };
  std::vector<std::vector<int32_t>> lines{encoded(text.sentences.at(0))};
  RulerCase made{{}, std::move(text.references)};
  source.tokenizer.encode(text.preamble, made.prompt,
                          {.add_special = true, .parse_special = false});
  const auto question = encode_behind(source.tokenizer, text.question);
  int64_t room = length - kNeedleTokens -
                 static_cast<int64_t>(made.prompt.size() + question.size() + lines[0].size());
  if (room < 0)
    throw UsageError(concat("a text of ", length, " tokens given; a needle, its question and ",
                            kNeedleTokens, " tokens of an answer have ", length - room));
  while (true) {
    const auto value = word_of(needles.value, random);
    auto key = word_of(needles.key, random);
    while (std::ranges::find(text.asked, key) != text.asked.end())
      key = word_of(needles.key, random);
    auto line = encoded(sentence(needles, key, value));
    room -= static_cast<int64_t>(line.size());
    if (room < 0) break;
    lines.push_back(std::move(line));
  }
  std::swap(lines[0], lines[random.below(static_cast<uint32_t>(lines.size()))]);
  for (const auto& line : lines) made.prompt.insert(made.prompt.end(), line.begin(), line.end());
  made.prompt.insert(made.prompt.end(), question.begin(), question.end());
  return made;
}

RulerCase make_single_1(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.noise, {}, length, random);
}
RulerCase make_single_2(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.text, {}, length, random);
}
RulerCase make_single_3(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.text, {.value = Word::kCode}, length, random);
}
RulerCase make_multikey_1(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.text, {.keys = 4}, length, random);
}
RulerCase make_multikey_2(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return among_needles(source, {}, length, random);
}
RulerCase make_multikey_3(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return among_needles(source, {.key = Word::kCode, .value = Word::kCode}, length, random);
}
RulerCase make_multivalue(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.text, {.values = 4}, length, random);
}
RulerCase make_multiquery(const RulerSource& source, int64_t length, data::RandomStream& random) {
  return in_text(source, source.text, {.keys = 4, .queries = 4}, length, random);
}

// Variables of five letters, each assigned to the one before it, the first to a number.
RulerCase make_chain(const RulerSource& source, int64_t length, data::RandomStream& random) {
  constexpr size_t kVariables = 5;
  std::vector<std::string> names;
  while (names.size() < kVariables) {
    std::string name;
    for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + random.below(26));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  const auto number = random_number(random, 5);
  std::vector<double> depths;
  for (size_t i = 0; i < kVariables; ++i) depths.push_back(random.uniform());
  std::ranges::sort(depths);
  HiddenText text{
      .preamble =
          "Follow the variables that are assigned in the text below.\n"
          "Example: VAR QWE = 41877. The day is long. VAR RTZ = VAR QWE. VAR UIO = VAR "
          "RTZ.\nThe 3 variables with the value 41877 are: QWE, RTZ, UIO\n\nText:\n",
      .needles = {},
      .questions = {{"\nQuestion: Which variables have the value " + number +
                         ", by themselves or through others?\nAnswer: The 5 variables with the "
                         "value " +
                         number + " are:",
                     kSomeAnswer}}};
  for (size_t i = 0; i < kVariables; ++i)
    text.needles.push_back(
        {depths[i], " VAR " + names[i] + " = " + (i == 0 ? number : "VAR " + names[i - 1]) + "."});
  return hidden(source, source.noise, text, names, length - kChainTokens, random);
}

std::string coined_word(data::RandomStream& random) {
  std::string word;
  for (uint32_t left = 2 + random.below(2); left > 0; --left) {
    word += "bdfgklmnprstvz"[random.below(14)];
    word += "aeiou"[random.below(5)];
  }
  return word + "lmnrst"[random.below(6)];
}

std::vector<std::string> distinct_words(const std::vector<std::string>& files) {
  std::vector<std::string> list;
  std::set<std::string> known;
  const auto add = [&](const std::string& word) {
    if (word.size() >= kShortestWord && word.size() <= kLongestWord && list.size() < kMostWords &&
        known.insert(word).second)
      list.push_back(word);
  };
  for (const auto& file : files)
    data::for_each_document(file, [&](std::string_view text) {
      std::string word;
      for (const char c : text) {
        const auto lower = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        if (lower >= 'a' && lower <= 'z') {
          word += lower;
          continue;
        }
        add(word);
        word.clear();
      }
      add(word);
    });
  data::RandomStream random(data::derive_seed(0, "ruler/words"), 0);
  while (list.size() < kMostWords) add(coined_word(random));
  return list;
}

char lower(char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

std::string lower_text(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

}  // namespace

RulerSource::RulerSource(const std::vector<std::string>& hay, const text::Tokenizer& tokenizer_)
    : tokenizer(tokenizer_),
      text(hay, tokenizer_),
      noise(Haystack::of_text(kNoise, tokenizer_)),
      words(distinct_words(hay)) {}

const std::vector<RulerTask>& ruler_tasks() {
  static const std::vector<RulerTask> tasks = {
      {"ruler-niah-single-1", "a number in repeated sentences", kNeedleTokens, make_single_1},
      {"ruler-niah-single-2", "a number in text", kNeedleTokens, make_single_2},
      {"ruler-niah-single-3", "a long code in text", kNeedleTokens, make_single_3},
      {"ruler-niah-multikey-1", "one of four numbers in text", kNeedleTokens, make_multikey_1},
      {"ruler-niah-multikey-2", "one number among nothing but numbers", kNeedleTokens,
       make_multikey_2},
      {"ruler-niah-multikey-3", "one code among nothing but codes", kNeedleTokens, make_multikey_3},
      {"ruler-niah-multivalue", "all four numbers of one name", kNeedleTokens, make_multivalue},
      {"ruler-niah-multiquery", "the numbers of four names", kNeedleTokens, make_multiquery},
      {"ruler-vt", "variables that have one value", kChainTokens, make_chain},
      {"ruler-cwe", "the ten most common words of a list", kCommonTokens, make_common_words},
      {"ruler-fwe", "the three most frequent words of a coded text", kFrequentTokens,
       make_frequent_words},
      {"ruler-association", "a person, by a question that shares no word with the needle",
       kAssociationTokens, make_association},
  };
  return tasks;
}

std::vector<RulerTask> find_ruler_tasks(std::string_view name) {
  if (name == "ruler") return ruler_tasks();
  std::vector<RulerTask> found;
  for (const auto& task : ruler_tasks())
    if (task.name == name) found.push_back(task);
  return found;
}

std::vector<std::string> ruler_task_names() {
  std::vector<std::string> names{"ruler"};
  for (const auto& task : ruler_tasks()) names.push_back(task.name);
  return names;
}

double ruler_recall(std::string_view answer, std::span<const std::string> references) {
  const auto text = lower_text(answer);
  const auto named = std::ranges::count_if(references, [&](const std::string& reference) {
    return text.find(lower_text(reference)) != std::string::npos;
  });
  return references.empty() ? 0
                            : static_cast<double>(named) / static_cast<double>(references.size());
}

}  // namespace tempera::eval
