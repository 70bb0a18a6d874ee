#include "tempera/serve/answer.h"

#include <atomic>
#include <thread>

#include "tempera/base/error.h"

namespace tempera::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{100};  // until the client is looked for again
constexpr milliseconds kPause{2};       // between looks at several jobs

uint64_t next_group() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

std::vector<std::shared_ptr<Job>> submit(Engine& engine, std::vector<JobRequest> requests) {
  const uint64_t group = next_group();
  for (auto& request : requests) request.group = group;
  try {
    return engine.submit(std::move(requests));
  } catch (const Busy& busy) {
    throw http::Refusal(429, busy.what(), {}, {{"Retry-After", "1"}});
  }
}

}  // namespace

Answer::Answer(ServedModel& model, std::vector<JobRequest> requests,
               const std::vector<std::string>& stop)
    : model_(model) {
  for (auto& job : submit(*model.engine, std::move(requests)))
    choices_.emplace_back(std::move(job), model, stop);
}

Answer::~Answer() {
  for (auto& choice : choices_) choice.job().cancel();
}

void Answer::measure(const Choice& choice, const Update& update, Clock::time_point& last) {
  const auto now = Clock::now();
  const auto seconds = [&](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  if (update.token) {
    if (choice.tokens() <= 1)
      model_.metrics->first_token.add(seconds(start_));
    else
      model_.metrics->between_tokens.add(seconds(last));
    last = now;
  }
  if (choice.ended()) model_.metrics->request.add(seconds(start_));
}

void Answer::follow(const http::Reply& reply, const Listener& listener) {
  std::vector<Clock::time_point> last(choices_.size(), start_);
  auto looked = Clock::now();
  for (size_t open = choices_.size(); open > 0;) {
    bool any = false;
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      if (choice.ended()) continue;
      const auto update = choice.job().next(choices_.size() == 1 ? kPatience : milliseconds(0));
      if (!update) continue;
      any = true;
      const std::string piece = choice.add(*update);
      measure(choice, *update, last[i]);
      listener(i, *update, piece);
      if (choice.ended()) --open;
    }
    if (!any && choices_.size() > 1) std::this_thread::sleep_for(kPause);
    if (Clock::now() - looked < kPatience) continue;
    looked = Clock::now();
    if (reply.is_client_gone()) throw http::Refusal(503, "the client has gone");
  }
}

Json Answer::usage(const std::vector<std::vector<int64_t>>& prompts) const {
  int64_t read = 0, written = 0;
  for (const auto& prompt : prompts) read += static_cast<int64_t>(prompt.size());
  for (const auto& choice : choices_) written += choice.tokens();
  return {
      {"prompt_tokens", read}, {"completion_tokens", written}, {"total_tokens", read + written}};
}

EventStream::EventStream(http::Reply& reply) : reply_(reply) {
  reply_.start({.type = "text/event-stream; charset=utf-8",
                .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void EventStream::send(const Json& event) {
  if (!reply_.write("data: " + to_text(event) + "\n\n"))
    throw http::Refusal(503, "the client has gone");
}

void EventStream::fail() {
  const auto tell = [this](const http::Refusal& refusal) {
    send(Json::parse(refusal.response().body));
  };
  try {
    throw;
  } catch (const http::Refusal& refusal) {
    tell(refusal);
  } catch (const std::exception&) {
    tell(http::Refusal(500, "the server failed at this request"));
    throw;
  }
}

void EventStream::end() { reply_.write("data: [DONE]\n\n"); }

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tempera::serve
