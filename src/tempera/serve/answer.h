#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tempera/http/server.h"
#include "tempera/serve/choice.h"
#include "tempera/serve/request.h"

namespace tempera::serve {

// All choices of one request, from the engine to the client. Ends the jobs that nobody waits for
// any more.
class Answer {
 public:
  // Throws Refusal where too many requests wait.
  Answer(ServedModel& model, std::vector<JobRequest> requests,
         const std::vector<std::string>& stop);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Called for each word of a job with the text that it added; throws where the client has gone.
  using Listener =
      std::function<void(size_t choice, const Update& update, const std::string& piece)>;
  void follow(const http::Reply& reply, const Listener& listener);

  Choice& choice(size_t index) { return choices_[index]; }
  size_t size() const { return choices_.size(); }
  Json usage(const std::vector<std::vector<int64_t>>& prompts) const;

 private:
  void measure(const Choice& choice, const Update& update, Clock::time_point& last);

  ServedModel& model_;
  std::vector<Choice> choices_;
  Clock::time_point start_ = Clock::now();
};

// Server-sent events.
class EventStream {
 public:
  explicit EventStream(http::Reply& reply);
  void send(const Json& event);
  // The last event of an answer that breaks off with the error that is being caught. What is no
  // refusal goes on to the log.
  void fail();
  void end();

 private:
  http::Reply& reply_;
};

// Text that may end within a character becomes valid.
std::string to_text(const Json& json);

}  // namespace tempera::serve
