#include "tempera/serve/choice.h"

#include <array>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/http/message.h"
#include "tempera/text/unicode.h"

namespace tempera::serve {
namespace {

std::string token_bytes(const text::Tokenizer& tokenizer, int64_t id) {
  // Behind itself: some tokenizers drop the blank in front of a text's first word.
  const auto token = static_cast<int32_t>(id);
  std::string once, twice;
  tokenizer.decode(std::array{token}, once, text::SpecialText::kShow);
  tokenizer.decode(std::array{token, token}, twice, text::SpecialText::kShow);
  return twice.size() >= once.size() ? twice.substr(once.size()) : once;
}

int64_t characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

}  // namespace

std::string token_text(const text::Tokenizer& tokenizer, int64_t id) {
  // A model may have more rows than its tokenizer has names.
  if (id >= tokenizer.vocabulary()) return concat("<unused", id, ">");
  const std::string bytes = token_bytes(tokenizer, id);
  if (text::is_valid_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    text += "\\x";
    text += "0123456789abcdef"[value / 16];
    text += "0123456789abcdef"[value % 16];
  }
  return text;
}

void CompletionScores::add(int64_t id, int64_t offset, const ScoredToken* scored) {
  const std::string text = token_text(tokenizer_, id);
  tokens_.push_back(text);
  offsets_.push_back(offset);
  if (!scored) {
    chances_.push_back(nullptr);
    tops_.push_back(nullptr);
    return;
  }
  chances_.push_back(scored->log_probability);
  Json top = Json::object();
  for (const auto& [other, chance] : scored->top)
    top.emplace(token_text(tokenizer_, other), chance);
  // Two tokens may have one text: the likelier one's number stays.
  top.emplace(text, scored->log_probability);
  tops_.push_back(std::move(top));
}

Json CompletionScores::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(chances_, Json::array())},
          {"top_logprobs", std::exchange(tops_, Json::array())},
          {"text_offset", std::exchange(offsets_, Json::array())}};
}

Json chat_score(const text::Tokenizer& tokenizer, const ScoredToken& scored) {
  const auto entry = [&](int64_t id, double chance) {
    Json bytes = Json::array();
    if (id < tokenizer.vocabulary())
      for (const char c : token_bytes(tokenizer, id))
        bytes.push_back(static_cast<unsigned char>(c));
    return Json{
        {"token", token_text(tokenizer, id)}, {"logprob", chance}, {"bytes", std::move(bytes)}};
  };
  Json token = entry(scored.id, scored.log_probability);
  token["top_logprobs"] = Json::array();
  for (const auto& [id, chance] : scored.top) token["top_logprobs"].push_back(entry(id, chance));
  return token;
}

std::string Choice::echo(int64_t token) {
  offset_ = length_;
  std::string piece = stream_.echo(token);
  length_ += characters(piece);
  return piece;
}

std::string Choice::add(const Update& update) {
  if (update.end == End::kFailed) throw Error(update.error);  // for the log, not for the client
  if (update.end == End::kDeadline) throw http::Refusal(504, "the time for this request is over");
  std::string piece;
  if (update.token) {
    ++tokens_;
    offset_ = length_;
    // Also what is held back lies in front of the next token.
    const size_t before = stream_.text().size();
    if (update.end != End::kStop) piece = stream_.add(update.token->id);
    if (!stream_.stopped()) length_ += characters(std::string_view(stream_.text()).substr(before));
  }
  if (stream_.stopped() || update.end == End::kStop)
    finish_ = "stop";
  else if (update.end != End::kNone)
    finish_ = "length";
  if (ended()) {
    job_->cancel(End::kStop);
    piece += stream_.finish();
  }
  return piece;
}

}  // namespace tempera::serve
