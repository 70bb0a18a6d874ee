#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tempera/generate/text.h"
#include "tempera/serve/fields.h"
#include "tempera/serve/job.h"
#include "tempera/serve/served_model.h"

namespace tempera::serve {

// What the token adds to a text, as text; bytes of a part of a character as "bytes:\xe2".
std::string token_text(const text::Tokenizer& tokenizer, int64_t id);

// Tokens with their log-probabilities, as completions give them: parallel lists.
class CompletionScores {
 public:
  explicit CompletionScores(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // `offset`: characters of the text in front of it. null: the first token of a prompt, of which
  // nothing is known.
  void add(int64_t id, int64_t offset, const ScoredToken* scored);
  // What has come since the last time.
  Json take();

 private:
  const text::Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), chances_ = Json::array(), tops_ = Json::array(),
       offsets_ = Json::array();
};

// A token as chats give it.
Json chat_score(const text::Tokenizer& tokenizer, const ScoredToken& scored);

// One answer as it grows.
class Choice {
 public:
  Choice(std::shared_ptr<Job> job, const ServedModel& model, const std::vector<std::string>& stop)
      : job_(std::move(job)), stream_(*model.tokenizer, stop) {}

  Job& job() { return *job_; }
  // The text of a token of the prompt; before the first add(), so that what is written follows on
  // it.
  std::string echo(int64_t token);
  // The text that became certain.
  std::string add(const Update& update);
  bool ended() const { return !finish_.empty(); }
  const std::string& finish() const { return finish_; }  // "stop" or "length", once it has ended
  const std::string& text() const { return stream_.text(); }
  int64_t tokens() const { return tokens_; }
  // Characters in front of the last token.
  int64_t offset() const { return offset_; }

 private:
  std::shared_ptr<Job> job_;
  generate::TextStream stream_;
  std::string finish_;
  int64_t length_ = 0, offset_ = 0;  // in characters
  int64_t tokens_ = 0;
};

}  // namespace tempera::serve
