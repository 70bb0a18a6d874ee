#include "tempera/eval/haystack.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/data/text.h"

namespace tempera::eval {
namespace {

constexpr int kFillerSentences = 4000;
constexpr std::string_view kStop = ".";

std::string filler_text() {
  data::RandomStream random(data::derive_seed(0, "filler"), 0);
  std::string text;
  for (int i = 0; i < kFillerSentences; ++i) text += (i > 0 ? " " : "") + filler_sentence(random);
  return text;
}

bool ends_sentence(const text::Tokenizer& tokenizer, int32_t id) {
  std::string text;
  tokenizer.decode(std::span(&id, 1), text);
  if (text.find('\n') != std::string::npos) return true;
  return !text.empty() && std::string_view(".!?").find(text.back()) != std::string_view::npos;
}

void append(std::vector<int32_t>& to, std::span<const int32_t> from) {
  to.insert(to.end(), from.begin(), from.end());
}

struct EncodedQuestion {
  std::vector<int32_t> text, answer;
  int64_t size() const { return static_cast<int64_t>(text.size() + answer.size()); }
};

bool is_blank(const text::Tokenizer& tokenizer, int32_t id) {
  std::string text;
  tokenizer.decode(std::span(&id, 1), text);
  return text.find_first_not_of(' ') == std::string::npos;
}

EncodedQuestion encode_question(const text::Tokenizer& tokenizer, const Question& question) {
  EncodedQuestion encoded{encode_behind(tokenizer, question.text), {}};
  const auto whole = encode_behind(tokenizer, question.text + question.answer);
  TEMPERA_CHECK(whole.size() > encoded.text.size(), "the answer '", question.answer,
                "' has no tokens of its own");
  // A blank that is a token of its own is given: a model that would rather begin its sentence with
  // a word ("the pass key is the ...") may know the number all the same.
  size_t given = encoded.text.size();
  while (given + 1 < whole.size() && is_blank(tokenizer, whole[given])) ++given;
  const auto answer = whole.begin() + static_cast<std::ptrdiff_t>(given);
  encoded.text.assign(whole.begin(), answer);
  encoded.answer.assign(answer, whole.end());
  return encoded;
}

// The place among [0, tokens] behind a sentence's end that is nearest to the depth.
size_t place_of(double depth, const std::vector<bool>& ends) {
  const auto wanted = static_cast<size_t>(std::lround(depth * static_cast<double>(ends.size())));
  if (wanted >= ends.size()) return ends.size();
  for (size_t away = 0; away <= ends.size(); ++away) {
    if (away <= wanted && (wanted == away || ends[wanted - away - 1])) return wanted - away;
    const size_t behind = wanted + away;
    if (behind >= ends.size() || ends[behind - 1]) return std::min(behind, ends.size());
  }
  return wanted;
}

}  // namespace

Haystack::Haystack(std::span<const std::string> files, const text::Tokenizer& tokenizer) {
  for (const auto& file : files) {
    data::check_readable_file(file);
    data::for_each_document(
        file, [&](std::string_view document) { tokenizer.encode(document, text_.tokens); });
  }
  if (files.empty()) tokenizer.encode(filler_text(), text_.tokens);
  find_sentences(tokenizer);
}

Haystack Haystack::of_text(std::string_view text, const text::Tokenizer& tokenizer) {
  Haystack hay;
  tokenizer.encode(text, hay.text_.tokens);
  hay.find_sentences(tokenizer);
  return hay;
}

void Haystack::find_sentences(const text::Tokenizer& tokenizer) {
  begins_.push_back(0);
  std::vector<int8_t> known(static_cast<size_t>(tokenizer.vocabulary()), -1);
  for (size_t i = 0; i < text_.tokens.size(); ++i) {
    int8_t& ends = known.at(static_cast<size_t>(text_.tokens[i]));
    if (ends < 0) ends = ends_sentence(tokenizer, text_.tokens[i]) ? 1 : 0;
    text_.ends.push_back(ends == 1);
    if (ends == 1 && i + 1 < text_.tokens.size()) begins_.push_back(i + 1);
  }
  TEMPERA_CHECK(!text_.tokens.empty(), "the text to hide things in has no tokens");
}

Haystack::Piece Haystack::take(data::RandomStream& random, int64_t tokens) const {
  Piece piece;
  size_t at = begins_[random.below(static_cast<uint32_t>(begins_.size()))];
  for (int64_t i = 0; i < tokens; ++i, ++at) {
    if (at == text_.tokens.size()) at = 0;
    piece.tokens.push_back(text_.tokens[at]);
    piece.ends.push_back(text_.ends[at]);
  }
  return piece;
}

std::vector<int32_t> encode_behind(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> stop, whole;
  tokenizer.encode(kStop, stop);
  tokenizer.encode(std::string(kStop) + std::string(text), whole);
  if (std::ranges::mismatch(stop, whole).in1 == stop.end())
    return {whole.begin() + static_cast<std::ptrdiff_t>(stop.size()), whole.end()};
  // The tokenizer joins the stop with what follows.
  whole.clear();
  tokenizer.encode(text, whole);
  return whole;
}

std::vector<Request> hide(const HiddenText& hidden, const Haystack& hay,
                          const text::Tokenizer& tokenizer, int64_t length,
                          data::RandomStream& random, size_t group) {
  std::vector<int32_t> context;
  tokenizer.encode(hidden.preamble, context, {.add_special = true, .parse_special = false});
  std::vector<EncodedQuestion> questions;
  for (const auto& question : hidden.questions)
    questions.push_back(encode_question(tokenizer, question));
  std::vector<std::vector<int32_t>> needles;
  auto room = length - static_cast<int64_t>(context.size()) -
              std::ranges::max(questions, {}, &EncodedQuestion::size).size();
  for (const auto& needle : hidden.needles) {
    needles.push_back(encode_behind(tokenizer, needle.text));
    room -= static_cast<int64_t>(needles.back().size());
  }
  if (room < 0)
    throw UsageError(concat("a text of ", length,
                            " tokens given; what is hidden in it and the "
                            "question alone have ",
                            length - room));

  const auto piece = hay.take(random, room);
  std::vector<std::pair<size_t, size_t>> places;  // where, which needle
  for (size_t i = 0; i < needles.size(); ++i)
    places.emplace_back(place_of(hidden.needles[i].depth, piece.ends), i);
  std::ranges::stable_sort(places, {}, &std::pair<size_t, size_t>::first);
  size_t done = 0;
  for (const auto& [place, needle] : places) {
    append(context, std::span(piece.tokens).subspan(done, place - done));
    append(context, needles[needle]);
    done = place;
  }
  append(context, std::span(piece.tokens).subspan(done));

  std::vector<Request> requests;
  for (const auto& question : questions) {
    requests.push_back({.context = context, .continuation = question.answer, .group = group});
    append(requests.back().context, question.text);
  }
  return requests;
}

}  // namespace tempera::eval
