#include <array>
#include <set>

#include "tempera/eval/ruler.h"

namespace tempera::eval {
namespace {

// No word of a question stands in its fact: the answer is found by what both mean.
constexpr std::array<Association, 24> kAssociations = {{
    {"{} keeps three hives at the end of the garden.", "Who could give away some honey?"},
    {"{} swells up from a single sip of milk.", "Who should not order the cheese?"},
    {"{} plays the cello every evening.", "Who is a musician?"},
    {"{} moved into a flat beside the Eiffel Tower.", "Who lives in the capital of France?"},
    {"{} has been on night duty in the ward since Monday.", "Who works at a hospital?"},
    {"{} mends boots and puts new heels on them.", "Who earns a living as a cobbler?"},
    {"{} sent a postcard with the pyramids on it.", "Who travelled to Egypt?"},
    {"{} was born in the year when men first walked on the moon.",
     "Whose date of birth lies in 1969?"},
    {"{} has never eaten meat or fish.", "Who is a vegetarian?"},
    {"{} cannot tell red from green.", "Who is colour-blind?"},
    {"{} takes the underground past Big Ben to the office.", "Who has a job in London?"},
    {"{} stamps books and collects the fines for late ones.", "Who is the librarian?"},
    {"{} pulled out two teeth before lunch.", "Who practises as a dentist?"},
    {"{} won the race by half a length on a grey mare.", "Who can ride a horse?"},
    {"{} grew up where kangaroos cross the road.", "Who comes from Australia?"},
    {"{} gets up at two to bake the rolls.", "Who makes the bread?"},
    {"{} has an identical sister.", "Who is a twin?"},
    {"{} lost the sight of both eyes as a child.", "Who is blind?"},
    {"{} draws the plans for new houses.", "Who is an architect?"},
    {"{} steered the ferry through the storm.", "Who is captain of a ship?"},
    {"{} buried a husband last winter.", "Who is a widow?"},
    {"{} faints on any balcony above the second floor.", "Who is afraid of heights?"},
    {"{} argued the case before the judge for two hours.", "Who is a lawyer?"},
    {"{} threw the snowballs and shovelled the drive, in July.",
     "Who was in the southern hemisphere?"},
}};

// Rare enough to be in no book.
constexpr std::array<std::string_view, 24> kNames = {
    "Yelvorin", "Quista",  "Brandulf", "Tamsika", "Orwenna", "Jorvald", "Peshka",  "Mirabund",
    "Caldrin",  "Zofiane", "Hestrom",  "Luvanne", "Drusko",  "Elphira", "Gorlan",  "Nazmira",
    "Wystan",   "Kirelle", "Thornby",  "Ulvara",  "Fenwald", "Isolka",  "Ravindo", "Sabrelle"};

constexpr size_t kNeedles = 4;

std::string told(const Association& association, std::string_view name) {
  std::string fact(association.fact);
  fact.replace(fact.find("{}"), 2, name);
  return " " + fact;
}

}  // namespace

std::span<const Association> associations() { return kAssociations; }

RulerCase make_association(const RulerSource& source, int64_t length, data::RandomStream& random) {
  constexpr int64_t kNewTokens = 32;
  const auto draw = [&](size_t count) {
    std::vector<uint32_t> drawn;
    while (drawn.size() < kNeedles) {
      const uint32_t one = random.below(static_cast<uint32_t>(count));
      if (std::set<uint32_t>(drawn.begin(), drawn.end()).contains(one)) continue;
      drawn.push_back(one);
    }
    return drawn;
  };
  const auto facts = draw(kAssociations.size()), names = draw(kNames.size());
  const std::string question(kAssociations[facts[0]].question);
  HiddenText text{
      .preamble = "Some people are mentioned in the text below. You will be asked about one.\n",
      .needles = {},
      .questions = {{"\nQuestion: " + question + " Give the name.\nAnswer:", " 0"}}};
  for (size_t i = 0; i < kNeedles; ++i)
    text.needles.push_back({random.uniform(), told(kAssociations[facts[i]], kNames[names[i]])});
  auto requests =
      hide(text, source.text, source.tokenizer, length - kNewTokens, random, /*group=*/0);
  return {std::move(requests.at(0).context), {std::string(kNames[names[0]])}};
}

}  // namespace tempera::eval
