#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tempera/generate/sampler.h"

namespace tempera::serve {

using Clock = std::chrono::steady_clock;

// One text to continue.
struct JobRequest {
  std::vector<int64_t> prompt = {};
  int64_t max_tokens = 16;
  generate::SamplerOptions sampler = {};
  double presence_penalty = 0, frequency_penalty = 0;  // off the scores of tokens written before
  // Added to the scores of tokens; all jobs of a request share it. Null: nothing.
  std::shared_ptr<const std::map<int64_t, double>> bias = {};
  std::vector<int64_t> stop_tokens = {};
  std::optional<int64_t> top = {};  // log-probabilities wanted, also of so many likeliest tokens
  bool prompt_scores = false;       // those of the prompt, too
  std::string client = {};          // clients take turns
  uint64_t group = 0;               // and so do the requests of a client
  Clock::time_point deadline = Clock::time_point::max();
};

struct ScoredToken {
  int64_t id = 0;
  double log_probability = 0;                        // the model's own, before sampling
  std::vector<std::pair<int64_t, double>> top = {};  // the likeliest, best first
};

// kStop: by a stop token, or because the one that listens has found a stop text.
enum class End { kNone, kLength, kStop, kCancelled, kDeadline, kFailed };

// What became of a job since the last word of it.
struct Update {
  std::vector<ScoredToken> prompt = {};  // of its tokens but the first, in parts
  std::optional<ScoredToken> token = {};
  End end = End::kNone;
  std::string error = {};
};

// A job on its way between the thread that asks and the engine.
class Job {
 public:
  explicit Job(JobRequest request) : request_(std::move(request)) {}

  const JobRequest& request() const { return request_; }

  // The next word of it; none in that time.
  std::optional<Update> next(std::chrono::milliseconds patience);
  // Nobody waits for it any more; the first reason counts.
  void cancel(End reason = End::kCancelled);
  // kNone: it goes on.
  End cancelled() const { return cancelled_; }

  void tell(Update update);

 private:
  const JobRequest request_;
  std::atomic<End> cancelled_ = End::kNone;
  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<Update> updates_;
};

}  // namespace tempera::serve
