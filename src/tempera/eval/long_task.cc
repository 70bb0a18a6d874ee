#include "tempera/eval/long_task.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

constexpr std::array<std::string_view, 12> kColours = {"blue",  "red",    "green",  "yellow",
                                                       "black", "white",  "brown",  "golden",
                                                       "grey",  "purple", "silver", "orange"};
constexpr std::array<std::string_view, 12> kAnimals = {"heron", "fox",   "otter", "beetle",
                                                       "owl",   "hare",  "crab",  "pony",
                                                       "wolf",  "robin", "toad",  "swan"};
constexpr auto kMostNames = static_cast<int64_t>(kColours.size() * kAnimals.size());

struct Fact {
  std::string name, number;
};

// Facts about different animals.
std::vector<Fact> random_facts(data::RandomStream& random, int64_t count, int64_t digits) {
  std::vector<uint32_t> drawn(static_cast<size_t>(count));
  data::DistinctSampler(static_cast<uint32_t>(kMostNames)).sample(random, drawn);
  std::vector<Fact> facts;
  for (const uint32_t which : drawn)
    facts.push_back({std::string(kColours[which % kColours.size()]) + " " +
                         std::string(kAnimals[which / kColours.size()]),
                     random_number(random, digits)});
  return facts;
}

Needle needle_of(const Fact& fact, double depth) {
  return {depth, " The number of the " + fact.name + " is " + fact.number + "."};
}

Question question_of(const Fact& fact) {
  return {"\nWhat is the number of the " + fact.name + "? The number of the " + fact.name + " is",
          " " + fact.number};
}

constexpr const char* kFactsPreamble =
    "The text below gives numbers to some animals. Remember them.\n";

LongCase hidden_case(const LongSource& source, LongPlace& place, const HiddenText& hidden) {
  return {.requests =
              hide(hidden, *source.hay, source.tokenizer, place.length, place.random, place.group)};
}

LongCase make_passkey(const LongSource& source, LongPlace place) {
  const auto key = random_number(place.random, source.options.digits);
  return hidden_case(
      source, place,
      {.preamble = "Somewhere in the text below there is a pass key. Find it and remember it.\n",
       .needles = {{.depth = place.depth,
                    .text =
                        " The pass key is " + key + ". Remember it: " + key + " is the pass key."}},
       .questions = {{.text = "\nWhat is the pass key? The pass key is", .answer = " " + key}}});
}

LongCase make_needle_keys(const LongSource& source, LongPlace place) {
  const auto facts = random_facts(place.random, source.options.needles, source.options.digits);
  HiddenText hidden{.preamble = kFactsPreamble,
                    .needles = {needle_of(facts[0], place.depth)},
                    .questions = {question_of(facts[0])}};
  for (size_t i = 1; i < facts.size(); ++i)
    hidden.needles.push_back(needle_of(facts[i], place.random.uniform()));
  return hidden_case(source, place, hidden);
}

LongCase make_needle_queries(const LongSource& source, LongPlace place) {
  HiddenText hidden{.preamble = kFactsPreamble, .needles = {}, .questions = {}};
  for (const auto& fact :
       random_facts(place.random, source.options.needles, source.options.digits)) {
    hidden.needles.push_back(needle_of(fact, place.random.uniform()));
    hidden.questions.push_back(question_of(fact));
  }
  return hidden_case(source, place, hidden);
}

LongCase make_needle_values(const LongSource& source, LongPlace place) {
  const auto name = random_facts(place.random, 1, 1)[0].name;
  std::vector<double> depths;
  for (int64_t i = 0; i < source.options.needles; ++i) depths.push_back(place.random.uniform());
  std::ranges::sort(depths);
  HiddenText hidden{.preamble = kFactsPreamble, .needles = {}, .questions = {}};
  std::string answer;
  for (const double depth : depths) {
    const auto number = random_number(place.random, source.options.digits);
    hidden.needles.push_back({depth, " One number of the " + name + " is " + number + "."});
    answer += (answer.empty() ? " " : ", ") + number;
  }
  hidden.questions = {{"\nWhich numbers does the " + name +
                           " have, in the order of the text? The numbers of the " + name + " are",
                       answer}};
  return hidden_case(source, place, hidden);
}

// The same cell twice would count its texts twice.
template <class T>
void check_distinct(const LongTask& task, const char* what, std::vector<T> values) {
  std::ranges::sort(values);
  const auto twice = std::ranges::adjacent_find(values);
  if (twice != values.end())
    throw UsageError(concat(task.name, ": the ", what, " ", *twice, " given twice"));
}

}  // namespace

LongSource open_source(const LongTask& task, const LongTaskOptions& options,
                       const text::Tokenizer& tokenizer) {
  LongSource source{.tokenizer = tokenizer, .options = options};
  if (task.source == LongTask::Source::kHay) source.hay.emplace(options.hay, tokenizer);
  if (task.source == LongTask::Source::kFile)
    for_each_line(options.file, 0, [&](const JsonLine& line) { source.examples.push_back(line); });
  return source;
}

const std::vector<LongTask>& long_tasks() {
  using enum LongTask::Source;
  static const std::vector<LongTask> tasks = {
      {"passkey", "a number that a text mentions once", kHay, true, make_passkey},
      {"needle-keys", "one of several numbers in a text", kHay, true, make_needle_keys},
      {"needle-values", "all numbers of one name, in order", kHay, false, make_needle_values},
      {"needle-queries", "several numbers, each asked for", kHay, false, make_needle_queries},
      {"key-value", "a value of a large JSON object", kNothing, true, make_key_value},
      {"classify", "a label, from many examples", kFile, false, make_classify},
      {"rerank", "which passage answers a question", kFile, true, make_rerank},
      {"qa", "an answer in one of many passages", kFile, true, make_qa},
      {"document-qa", "an answer in one long document", kFile, false, make_document_qa},
  };
  return tasks;
}

const LongTask* find_long_task(std::string_view name) {
  const auto found = std::ranges::find(long_tasks(), name, &LongTask::name);
  return found == long_tasks().end() ? nullptr : &*found;
}

void check_long_options(const LongTask& task, const LongTaskOptions& options) {
  const bool depths = !task.depths || !options.depths.empty();
  if (options.lengths.empty() || !depths || options.cases < 1)
    throw UsageError(concat(task.name, ": ", options.lengths.size(), " lengths, ",
                            options.depths.size(), " depths and ", options.cases,
                            " cases given; at least one of each is needed"));
  if (options.digits < 1 || options.digits > 18)
    throw UsageError(
        concat(task.name, ": numbers of ", options.digits, " digits given; 1 to 18 expected"));
  if (options.needles < 1 || options.needles > kMostNames)
    throw UsageError(
        concat(task.name, ": ", options.needles, " needles given; 1 to ", kMostNames, " expected"));
  check_distinct(task, "length", options.lengths);
  check_distinct(task, "depth", options.depths);
  for (const double depth : options.depths)
    if (!(depth >= 0 && depth <= 1))
      throw UsageError(concat(task.name, ": a depth of ", depth,
                              " given; 0 is the begin of the text, 1 its end"));
}

data::RandomStream case_stream(const LongTask& task, const LongTaskOptions& options,
                               const CaseOf& which) {
  const uint64_t seed = data::derive_seed(static_cast<uint64_t>(options.seed), task.name);
  return {data::mix64(seed + std::bit_cast<uint64_t>(which.depth)),
          static_cast<uint64_t>(which.length), static_cast<uint32_t>(which.number)};
}

}  // namespace tempera::eval
