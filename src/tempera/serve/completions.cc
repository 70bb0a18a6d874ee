#include <memory>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/serve/api.h"

namespace tempera::serve {
namespace {

constexpr int64_t kUsualTokens = 16;  // as OpenAI's
constexpr int64_t kMostTop = 100;
// What a request may make the server hold; the prompt counts for each of its choices.
constexpr int64_t kMostAnswers = 4096, kMostTokens = int64_t{1} << 22;

struct Completion {
  TextRequest text;
  std::vector<std::vector<int64_t>> prompts;
  bool echo = false;
  bool scores = false;

  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(text.choices); }
};

void check_size(const Completion& completion) {
  int64_t tokens = 0;
  for (const auto& prompt : completion.prompts)
    tokens += static_cast<int64_t>(prompt.size()) * completion.text.choices;
  const auto answers = static_cast<int64_t>(completion.prompts.size()) * completion.text.choices;
  if (answers > kMostAnswers || tokens > kMostTokens)
    refuse_field("prompt", concat(answers, " answers and ", tokens,
                                  " tokens of their prompts wanted; at most ", kMostAnswers,
                                  " and ", kMostTokens, " are taken in a request"));
}

Completion read_completion(const RequestFields& fields, const ServedModel& model) {
  Completion completion{.text = read_text_request(fields, model),
                        .prompts = read_prompts(fields, model)};
  check_size(completion);
  completion.echo = fields.flag("echo");
  completion.text.job.top = fields.integer("logprobs", 0, kMostTop);
  completion.scores = completion.text.job.top.has_value();
  completion.text.job.prompt_scores = completion.echo && completion.scores;
  return completion;
}

std::vector<JobRequest> jobs_of(const Completion& completion, const ServedModel& model) {
  std::vector<JobRequest> jobs;
  for (const auto& prompt : completion.prompts)
    for (int64_t i = 0; i < completion.text.choices; ++i)
      jobs.push_back(job_for(completion.text, prompt, i, model, kUsualTokens));
  check_scores(jobs, "logprobs");
  return jobs;
}

// One choice of a completion on its way out.
struct Part {
  std::string text;
  CompletionScores scores;
  std::vector<int64_t> offsets = {};  // of the tokens of an echoed prompt with scores
  size_t scored = 0;                  // of them

  explicit Part(const text::Tokenizer& tokenizer) : scores(tokenizer) {}
};

class CompletionWriter {
 public:
  CompletionWriter(const Completion& completion, const ServedModel& model)
      : completion_(completion) {
    const size_t count = completion.prompts.size() * static_cast<size_t>(completion.text.choices);
    for (size_t i = 0; i < count; ++i) parts_.emplace_back(*model.tokenizer);
  }

  // The prompt in front of the choice.
  void echo(size_t index, Choice& choice) {
    Part& part = parts_[index];
    const auto& prompt = completion_.prompts[completion_.prompt_of(index)];
    for (const int64_t id : prompt) {
      part.text += choice.echo(id);
      if (completion_.scores) part.offsets.push_back(choice.offset());
    }
    if (completion_.scores) part.scores.add(prompt[0], part.offsets[part.scored++], nullptr);
  }

  void add(size_t index, const Choice& choice, const Update& update, const std::string& piece) {
    Part& part = parts_[index];
    for (const auto& token : update.prompt)
      part.scores.add(token.id, part.offsets[part.scored++], &token);
    if (update.token && completion_.scores)
      part.scores.add(update.token->id, choice.offset(), &*update.token);
    part.text += piece;
  }

  // The choice with what has come since the last time.
  Json take(size_t index, const std::string& finish) {
    Part& part = parts_[index];
    return {{"index", index},
            {"text", std::exchange(part.text, "")},
            {"logprobs", completion_.scores ? part.scores.take() : Json()},
            {"finish_reason", finish.empty() ? Json() : Json(finish)}};
  }
  bool has_news(size_t index) const { return !parts_[index].text.empty(); }

 private:
  const Completion& completion_;
  std::vector<Part> parts_;
};

Json document(const std::string& id, const ServedModel& model, int64_t created, Json choices) {
  return {{"id", id},
          {"object", "text_completion"},
          {"created", created},
          {"model", model.name},
          {"choices", std::move(choices)}};
}

}  // namespace

void Api::complete(const http::Request& request, http::Reply& reply) {
  const RequestFields fields(request.body);
  const auto served = decoder_of(fields);
  ServedModel& model = *served;
  Completion completion = read_completion(fields, model);
  completion.text.job.deadline = deadline();
  Answer answer(model, jobs_of(completion, model), completion.text.stop);
  CompletionWriter writer(completion, model);
  for (size_t i = 0; completion.echo && i < answer.size(); ++i) writer.echo(i, answer.choice(i));
  const std::string id = new_id("cmpl");
  const int64_t created = unix_seconds();
  std::optional<EventStream> events;
  if (completion.text.stream) events.emplace(reply);
  const auto listen = [&](size_t i, const Update& update, const std::string& piece) {
    writer.add(i, answer.choice(i), update, piece);
    const std::string& finish = answer.choice(i).finish();
    const bool news = completion.scores || writer.has_news(i) || !finish.empty();
    if (events && news)
      events->send(document(id, model, created, Json::array({writer.take(i, finish)})));
  };
  try {
    answer.follow(reply, listen);
  } catch (...) {
    if (!events) throw;
    return events->fail();
  }
  const Json usage = answer.usage(completion.prompts);
  if (events) {
    if (completion.text.stream_usage) {
      Json last = document(id, model, created, Json::array());
      last["usage"] = usage;
      events->send(last);
    }
    return events->end();
  }
  Json choices = Json::array();
  for (size_t i = 0; i < answer.size(); ++i)
    choices.push_back(writer.take(i, answer.choice(i).finish()));
  Json whole = document(id, model, created, std::move(choices));
  whole["usage"] = usage;
  reply.send({.body = to_text(whole)});
}

}  // namespace tempera::serve
