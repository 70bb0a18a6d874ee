#include <optional>

#include "tempera/serve/api.h"

namespace tempera::serve {
namespace {

constexpr int64_t kMostTop = 20;

struct Conversation {
  TextRequest text;
  std::vector<int64_t> prompt;
};

Conversation read_chat(const RequestFields& fields, const ServedModel& model) {
  Conversation chat{.text = read_text_request(fields, model), .prompt = {}};
  const auto top = fields.integer("top_logprobs", 0, kMostTop);
  if (fields.flag("logprobs"))
    chat.text.job.top = top.value_or(0);
  else if (top.value_or(0) > 0)
    refuse_field("top_logprobs", "given without \"logprobs\": true");
  if (const Json* format = fields.object("response_format"))
    if (format->value("type", Json("text")) != "text")
      refuse_field("response_format", "only answers of the type \"text\" are written");
  chat.prompt = read_conversation(fields, model);
  return chat;
}

Json document(const char* object, const std::string& id, const ServedModel& model, int64_t created,
              Json choices) {
  return {{"id", id},
          {"object", object},
          {"created", created},
          {"model", model.name},
          {"choices", std::move(choices)}};
}

Json optional_text(const std::string& text) { return text.empty() ? Json() : Json(text); }

// The events of a chat: who speaks, then pieces of what is said, then why it ended.
class ChatEvents {
 public:
  ChatEvents(http::Reply& reply, const ServedModel& model, std::string id, int64_t created,
             size_t choices)
      : events_(reply), model_(model), id_(std::move(id)), created_(created) {
    for (size_t i = 0; i < choices; ++i)
      send(i, {{"role", "assistant"}, {"content", ""}}, Json(), "");
  }

  void add(size_t index, const Json& scores, const std::string& piece, const std::string& finish) {
    if (!piece.empty() || !scores.is_null()) send(index, {{"content", piece}}, scores, "");
    if (!finish.empty()) send(index, Json::object(), Json(), finish);
  }
  void fail() { events_.fail(); }
  void end(const Json& usage) {
    if (!usage.is_null()) {
      Json last = document(kObject, id_, model_, created_, Json::array());
      last["usage"] = usage;
      events_.send(last);
    }
    events_.end();
  }

 private:
  static constexpr const char* kObject = "chat.completion.chunk";

  void send(size_t index, Json delta, const Json& scores, const std::string& finish) {
    events_.send(document(kObject, id_, model_, created_,
                          Json::array({Json{{"index", index},
                                            {"delta", std::move(delta)},
                                            {"logprobs", scores},
                                            {"finish_reason", optional_text(finish)}}})));
  }

  EventStream events_;
  const ServedModel& model_;
  std::string id_;
  int64_t created_;
};

}  // namespace

void Api::chat(const http::Request& request, http::Reply& reply) {
  const RequestFields fields(request.body);
  const auto served = decoder_of(fields);
  ServedModel& model = *served;
  Conversation chat = read_chat(fields, model);
  chat.text.job.deadline = deadline();
  std::vector<JobRequest> jobs;
  for (int64_t i = 0; i < chat.text.choices; ++i)
    jobs.push_back(job_for(chat.text, chat.prompt, i, model, model.engine->context()));
  check_scores(jobs, "top_logprobs");
  Answer answer(model, std::move(jobs), chat.text.stop);
  const std::string id = new_id("chatcmpl");
  const int64_t created = unix_seconds();
  std::optional<ChatEvents> events;
  if (chat.text.stream) events.emplace(reply, model, id, created, answer.size());
  std::vector<Json> scores(answer.size(), Json::array());
  const auto listen = [&](size_t i, const Update& update, const std::string& piece) {
    Json score;
    if (update.token && chat.text.job.top)
      score = {{"content", Json::array({chat_score(*model.tokenizer, *update.token)})}};
    if (events) return events->add(i, score, piece, answer.choice(i).finish());
    if (!score.is_null()) scores[i].push_back(score["content"][0]);
  };
  try {
    answer.follow(reply, listen);
  } catch (...) {
    if (!events) throw;
    return events->fail();
  }
  const Json usage = answer.usage({chat.prompt});
  if (events) return events->end(chat.text.stream_usage ? usage : Json());
  Json choices = Json::array();
  for (size_t i = 0; i < answer.size(); ++i) {
    const Json message = {{"role", "assistant"}, {"content", answer.choice(i).text()}};
    choices.push_back({{"index", i},
                       {"message", message},
                       {"logprobs", chat.text.job.top ? Json{{"content", scores[i]}} : Json()},
                       {"finish_reason", answer.choice(i).finish()}});
  }
  Json whole = document("chat.completion", id, model, created, std::move(choices));
  whole["usage"] = usage;
  reply.send({.body = to_text(whole)});
}

}  // namespace tempera::serve
