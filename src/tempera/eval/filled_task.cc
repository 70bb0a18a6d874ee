#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/eval/long_task.h"

namespace tempera::eval {
namespace {

using Ids = std::vector<int32_t>;

void extend(Ids& to, const Ids& from) { to.insert(to.end(), from.begin(), from.end()); }

int64_t size_of(const Ids& ids) { return static_cast<int64_t>(ids.size()); }

// A text of parts of one kind between a preamble and a question.
struct FilledText {
  std::string preamble;
  std::optional<std::string> target = {};            // the part that is asked for
  std::function<std::optional<std::string>()> next;  // one more other part, as long as there is one
  // How a part is written; numbers count from 1.
  std::function<std::string(size_t number, const std::string& part)> write;
  std::string question;
  std::vector<std::string> answers = {};  // with the blank in front of them
  // Given: the answers by how many parts there are; `answers` then holds one as long as any.
  std::function<std::vector<std::string>(size_t parts)> answers_of = {};
};

struct FilledResult {
  std::vector<Request> requests;
  size_t target = 0;  // its place among the parts, from 0
};

Ids encode_begin(const text::Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encode(text, ids, {.add_special = true, .parse_special = false});
  return ids;
}

std::vector<Request> ask(const text::Tokenizer& tokenizer, const Ids& body,
                         const std::string& question, const std::vector<std::string>& answers,
                         size_t group) {
  const auto asked = encode_behind(tokenizer, question);
  std::vector<Request> requests;
  for (const auto& answer : answers) {
    const auto whole = encode_behind(tokenizer, question + answer);
    TEMPERA_CHECK(whole.size() > asked.size(), "the answer '", answer,
                  "' has no tokens of its own");
    requests.push_back({.context = body,
                        .continuation = {whole.begin() + size_of(asked), whole.end()},
                        .group = group});
    extend(requests.back().context, asked);
  }
  return requests;
}

int64_t longest_end(const text::Tokenizer& tokenizer, const std::string& question,
                    const std::vector<std::string>& answers) {
  int64_t longest = 0;
  for (const auto& answer : answers)
    longest = std::max(longest, size_of(encode_behind(tokenizer, question + answer)));
  return longest;
}

void check_room(int64_t room, int64_t length) {
  if (room < 0)
    throw UsageError(concat("a text of ", length,
                            " tokens given; what is asked for and the question alone have ",
                            length - room));
}

FilledResult fill(const LongSource& source, const LongPlace& place, const FilledText& text) {
  constexpr size_t kWidest = 999;  // a number as wide as any that comes up
  const auto& tokenizer = source.tokenizer;
  Ids body = encode_begin(tokenizer, text.preamble);
  int64_t room = place.length - size_of(body) - longest_end(tokenizer, text.question, text.answers);
  const auto cost = [&](const std::string& part) {
    return size_of(encode_behind(tokenizer, text.write(kWidest, part)));
  };
  std::vector<std::string> parts;
  if (text.target) room -= cost(*text.target);
  check_room(room, place.length);
  while (const auto part = text.next()) {
    room -= cost(*part);
    if (room < 0) break;
    parts.push_back(*part);
  }
  FilledResult result;
  if (text.target) {
    result.target =
        static_cast<size_t>(std::lround(place.depth * static_cast<double>(parts.size())));
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(result.target), *text.target);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    extend(body, encode_behind(tokenizer, text.write(i + 1, parts[i])));
  const auto answers = text.answers_of ? text.answers_of(parts.size()) : text.answers;
  result.requests = ask(tokenizer, body, text.question, answers, place.group);
  return result;
}

std::string hex_word(data::RandomStream& random) {
  std::string word;
  for (int i = 0; i < 8; ++i) word += "0123456789abcdef"[random.below(16)];
  return word;
}

const JsonLine& example_of(const LongSource& source, const LongPlace& place) {
  return source.examples[place.index % source.examples.size()];
}

// The numbers [0, count) but one, in random order.
std::vector<size_t> others(data::RandomStream& random, size_t count, size_t without) {
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i)
    if (i != without) order.push_back(i);
  random.shuffle(std::span(order));
  return order;
}

std::vector<std::string> answers_of(const JsonLine& fields) {
  std::vector<std::string> answers;
  for (const auto& answer : fields.texts("answers")) answers.push_back(" " + answer);
  if (answers.empty()) fields.fail("\"answers\" is empty");
  return answers;
}

size_t gold_passage(const JsonLine& fields) {
  const size_t count = fields.texts("passages").size();
  if (count == 0) fields.fail("\"passages\" is empty");
  return fields.has("gold") ? fields.index("gold", count) : 0;
}

// The other passages of the example, then those of other examples in random order; none that holds
// an answer.
std::vector<std::string> distractors_of(const LongSource& source, LongPlace& place) {
  const size_t own = place.index % source.examples.size();
  const JsonLine& example = source.examples[own];
  const size_t gold = gold_passage(example);
  const auto answers =
      example.has("answers") ? example.texts("answers") : std::vector<std::string>();
  std::vector<std::string> list;
  const auto add = [&](const std::string& passage) {
    if (std::ranges::none_of(
            answers, [&](const auto& answer) { return passage.find(answer) != std::string::npos; }))
      list.push_back(passage);
  };
  const auto passages = example.texts("passages");
  for (size_t i = 0; i < passages.size(); ++i)
    if (i != gold) add(passages[i]);
  for (const size_t i : others(place.random, source.examples.size(), own))
    for (const auto& passage : source.examples[i].texts("passages")) add(passage);
  return list;
}

std::function<std::optional<std::string>()> one_by_one(std::vector<std::string> list) {
  return [list = std::move(list), at = size_t{0}]() mutable -> std::optional<std::string> {
    if (at == list.size()) return std::nullopt;
    return list[at++];
  };
}

std::string numbered(size_t number, const std::string& passage) {
  return "\n[" + std::to_string(number) + "] " + passage;
}

}  // namespace

LongCase make_key_value(const LongSource& source, LongPlace place) {
  const auto pair = [&] { return "\"" + hex_word(place.random) + "\": "; };
  const std::string key = pair(), value = "\"" + hex_word(place.random) + "\"";
  const FilledText text{
      .preamble = "A JSON object with keys and their values.\n{",
      .target = key + value,
      .next = [&]() { return pair() + "\"" + hex_word(place.random) + "\""; },
      .write = [](size_t /*number*/, const std::string& part) { return "\n" + part + ","; },
      .question = "\n}\nThe line of the object with the key " + key.substr(0, key.size() - 2) +
                  " is:\n" + key.substr(0, key.size() - 1),
      .answers = {" " + value}};
  return {.requests = fill(source, place, text).requests, .rule = HitRule::kAny};
}

LongCase make_classify(const LongSource& source, LongPlace place) {
  const size_t own = place.index % source.examples.size();
  const auto shot = [](const JsonLine& fields) {
    return "\nText: " + fields.text("text") + "\nLabel:";
  };
  std::vector<std::string> labels;
  for (const auto& example : source.examples) {
    const auto label = " " + example.text("label");
    if (std::ranges::count(labels, label) == 0) labels.push_back(label);
  }
  std::vector<std::string> shots;
  for (const size_t i : others(place.random, source.examples.size(), own))
    shots.push_back(shot(source.examples[i]) + " " + source.examples[i].text("label"));
  const JsonLine& example = source.examples[own];
  const auto gold = std::ranges::find(labels, " " + example.text("label")) - labels.begin();
  const FilledText text{.preamble = "Every text has a label.",
                        .next = one_by_one(std::move(shots)),
                        .write = [](size_t /*number*/, const std::string& part) { return part; },
                        .question = shot(example),
                        .answers = labels};
  return {.requests = fill(source, place, text).requests,
          .rule = HitRule::kBest,
          .gold = static_cast<size_t>(gold)};
}

LongCase make_rerank(const LongSource& source, LongPlace place) {
  const JsonLine& example = example_of(source, place);
  const FilledText text{.preamble = "Passages, each with a number.",
                        .target = example.texts("passages")[gold_passage(example)],
                        .next = one_by_one(distractors_of(source, place)),
                        .write = numbered,
                        .question = "\nQuestion: " + example.text("question") +
                                    "\nThe passage that answers the question has the number",
                        .answers = {" [999]"},
                        .answers_of = [](size_t parts) {
                          std::vector<std::string> list;
                          for (size_t i = 1; i <= parts; ++i)
                            list.push_back(" [" + std::to_string(i) + "]");
                          return list;
                        }};
  auto filled = fill(source, place, text);
  return {.requests = std::move(filled.requests), .rule = HitRule::kBest, .gold = filled.target};
}

LongCase make_qa(const LongSource& source, LongPlace place) {
  const JsonLine& example = example_of(source, place);
  const FilledText text{.preamble = "Passages, one of which answers the question below.",
                        .target = example.texts("passages")[gold_passage(example)],
                        .next = one_by_one(distractors_of(source, place)),
                        .write = numbered,
                        .question = "\nQuestion: " + example.text("question") + "\nAnswer:",
                        .answers = answers_of(example)};
  return {.requests = fill(source, place, text).requests, .rule = HitRule::kAny};
}

LongCase make_document_qa(const LongSource& source, LongPlace place) {
  const auto& tokenizer = source.tokenizer;
  const JsonLine& example = example_of(source, place);
  const auto answers = answers_of(example);
  const std::string question = "\nQuestion: " + example.text("question") + "\nAnswer:";
  Ids body = encode_begin(tokenizer, "Read the document and answer the question behind it.\n");
  const int64_t room = place.length - size_of(body) - longest_end(tokenizer, question, answers);
  check_room(room, place.length);
  Ids document;
  tokenizer.encode(example.text("document"), document);
  // Of a document that is too long the middle goes: begin and end say most.
  if (size_of(document) > room)
    document.erase(document.begin() + room / 2, document.end() - (room - room / 2));
  extend(body, document);
  return {.requests = ask(tokenizer, body, question, answers, place.group), .rule = HitRule::kAny};
}

}  // namespace tempera::eval
