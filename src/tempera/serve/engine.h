#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/nn/model.h"
#include "tempera/serve/block_pool.h"
#include "tempera/serve/job.h"
#include "tempera/serve/metrics.h"

namespace tempera::serve {

struct EngineOptions {
  int64_t max_batch = 16;   // jobs at once
  int64_t max_queue = 256;  // requests, groups of jobs, that may wait
  int64_t context = 0;      // tokens of a prompt with its answer; 0: the model's
  int64_t cache_rows = 0;   // of keys and values, of all jobs; 0: as many as 512 MiB hold
  int64_t threads = 0;      // 0: torch's own choice
};

// The engine takes no more jobs now.
class Busy : public Error {
 public:
  using Error::Error;
};

// Computes the jobs of one model on a thread of its own: the steps of all that write go together,
// and prompts come in between by pieces. A job has memory for its prompt first and takes more as it
// writes; where there is none, the job that came last gives all of its own back, and is computed
// anew later without a word about what it has told. A job gets the same bits alone and in any
// company, on the CPU: a prompt is read alone, in pieces that begin where they always do, and a row
// of a common step does not depend on the others.
class Engine {
 public:
  Engine(std::shared_ptr<nn::Model> model, const EngineOptions& options);
  // Jobs under way fail.
  ~Engine();

  // Tokens of a prompt with its answer.
  int64_t context() const { return context_; }
  // Throws Busy where too many wait; all or none.
  std::vector<std::shared_ptr<Job>> submit(std::vector<JobRequest> requests);
  EngineState state() const;

 private:
  struct Sequence;
  using Sequences = std::list<std::unique_ptr<Sequence>>;

  void work();
  bool wait_for_work();
  void admit();
  std::deque<std::shared_ptr<Job>>::iterator next_waiting();
  int64_t regime(int64_t length) const;
  bool take_memory(Sequence& sequence);
  void make_room();
  void pause_last();
  void step();
  void drop_abandoned();
  void read_piece(Sequence& sequence);
  void tell_prompt_scores(Sequence& sequence, const torch::Tensor& hidden, int64_t first);
  void write_tokens();
  void write_together(const std::vector<Sequence*>& together);
  void add_token(Sequence& sequence, const torch::Tensor& logits);
  void count(End end);
  void end(Sequence& sequence, Update update);
  void fail_all(const std::string& error);

  std::shared_ptr<nn::Model> model_;
  EngineOptions options_;
  int64_t context_;
  BlockPool pool_;
  nn::PagedCache cache_;
  Sequences running_;  // in the order in which they came, and so are those that are paused
  Sequences paused_;   // all of which came behind those that run

  mutable std::mutex mutex_;  // of what follows, and of pool_'s numbers in state_
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  EngineState state_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tempera::serve
