#include "tempera/serve/engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tempera/models/device.h"
#include "tempera/nn/positions.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"
#include "tempera/serve/scores.h"
#include "tempera/serve/turns.h"

namespace tempera::serve {
namespace {

// Rows of a block, and of a piece of a prompt: enough for the fast product, few enough that those
// who write do not wait long.
constexpr int64_t kPiece = 128;

// Of keys and values, where the user does not say.
constexpr int64_t kUsualBytes = int64_t{512} << 20;

// Jobs that may wait beyond a place for each request: no large one shuts the others out.
constexpr size_t kMostMore = 4096;

int64_t blocks_of(int64_t rows) { return (rows + kPiece - 1) / kPiece; }

int64_t context_of(const nn::Model& model, int64_t wanted) {
  nn::require_decoder(model, "serve");
  const int64_t most = model.config().max_length();
  const int64_t context = wanted > 0 ? wanted : model.config().context;
  TEMPERA_CHECK(most == 0 || context <= most, "context: ", context,
                " given; the model has learned positions for ", most);
  TEMPERA_CHECK(context > 0, "the model does not say its context: give it with --context");
  return context;
}

// Bytes of the keys and values of a row.
int64_t row_bytes(nn::Model& model) {
  int64_t bytes = 0;
  for (const auto* method : model.methods())
    bytes += nn::LayerCache::row_bytes(*method, model.cache_type());
  return bytes;
}

int64_t block_count(nn::Model& model, int64_t context, const EngineOptions& options) {
  TEMPERA_CHECK(options.cache_rows == 0 || options.cache_rows >= context,
                "cache-tokens: ", options.cache_rows, " given; one context of ", context,
                " has to go into it");
  if (options.cache_rows > 0) return blocks_of(options.cache_rows);
  const int64_t most = options.max_batch * blocks_of(context);
  return std::clamp(kUsualBytes / (row_bytes(model) * kPiece), blocks_of(context), most);
}

const char* reason(End end) {
  switch (end) {
    case End::kLength:
      return "length";
    case End::kStop:
      return "stop";
    case End::kCancelled:
      return "abort";
    case End::kDeadline:
      return "timeout";
    default:
      return "error";
  }
}

// Why the job is to end before it has all its tokens; kNone: it goes on.
End abandoned(const Job& job, Clock::time_point now) {
  if (job.cancelled() != End::kNone) return job.cancelled();
  return now < job.request().deadline ? End::kNone : End::kDeadline;
}

}  // namespace

struct Engine::Sequence {
  explicit Sequence(std::shared_ptr<Job> asked) : job(std::move(asked)), writer(job->request()) {}

  bool reads() const { return place.length < prompt_length(); }
  int64_t prompt_length() const { return static_cast<int64_t>(job->request().prompt.size()); }
  // Of the prompt and what was written, without the last token: nothing reads it before the next
  // is wanted.
  int64_t rows() const { return prompt_length() + std::max<int64_t>(std::ssize(ids) - 1, 0); }
  // What it may come to need.
  int64_t most_rows() const {
    return prompt_length() + std::max<int64_t>(job->request().max_tokens - 1, 0);
  }

  std::shared_ptr<Job> job;
  Writer writer;
  nn::PagedSequence place;
  int64_t next = -1;         // a token that was written and has not been read
  std::vector<int64_t> ids;  // all that were written and told
  int64_t written = 0;       // of them, since its memory was taken the last time
  int64_t scored = 0;        // rows of the prompt whose scores were told
  bool ended = false;
};

Engine::Engine(std::shared_ptr<nn::Model> model, const EngineOptions& options)
    : model_(std::move(model)),
      options_(options),
      context_(context_of(*model_, options.context)),
      pool_(block_count(*model_, context_, options), kPiece),
      cache_(model_->make_paged_cache(pool_.blocks(), kPiece)) {
  state_.cache_bytes = pool_.blocks() * kPiece * row_bytes(*model_);
  thread_ = std::thread([this] { work(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<std::shared_ptr<Job>> Engine::submit(std::vector<JobRequest> requests) {
  std::vector<std::shared_ptr<Job>> jobs;
  for (auto& request : requests) {
    TEMPERA_CHECK(
        !request.prompt.empty() && static_cast<int64_t>(request.prompt.size()) <= context_,
        "a prompt of ", request.prompt.size(), " tokens given, 1 to ", context_, " expected");
    jobs.push_back(std::make_shared<Job>(std::move(request)));
  }
  {
    const std::lock_guard lock(mutex_);
    std::set<uint64_t> groups;
    for (const auto& job : waiting_) groups.insert(job->request().group);
    const auto most = static_cast<size_t>(options_.max_queue);
    // The jobs of one request go together, also where they are more than may wait.
    if (!waiting_.empty() &&
        (groups.size() >= most || waiting_.size() + jobs.size() > most + kMostMore))
      throw Busy(concat(groups.size(), " requests with ", waiting_.size(),
                        " texts wait already; try again later"));
    waiting_.insert(waiting_.end(), jobs.begin(), jobs.end());
  }
  changed_.notify_all();
  return jobs;
}

EngineState Engine::state() const {
  const std::lock_guard lock(mutex_);
  EngineState state = state_;
  state.waiting += static_cast<int64_t>(waiting_.size());
  return state;
}

void Engine::work() {
  models::use_threads(options_.threads);
  const torch::NoGradGuard no_grad;
  model_->eval();
  while (wait_for_work()) {
    try {
      drop_abandoned();
      admit();
      const std::lock_guard computing(compute_turns());
      step();
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
    const std::lock_guard lock(mutex_);
    state_.running = static_cast<int64_t>(running_.size());
    state_.waiting = static_cast<int64_t>(paused_.size());
    state_.cache_used = static_cast<double>(pool_.used()) / static_cast<double>(pool_.blocks());
  }
  fail_all("the server has stopped");
}

// With some scalings of the positions, keys of one length are no keys of another.
int64_t Engine::regime(int64_t length) const {
  return nn::rotary_regime(model_->config().rope, model_->config().context, length);
}

bool Engine::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return stopping_ || !waiting_.empty() || !running_.empty() || !paused_.empty();
  });
  return !stopping_;
}

// The client, then its request, with the fewest jobs under way; then the first to come.
std::deque<std::shared_ptr<Job>>::iterator Engine::next_waiting() {
  std::map<std::string, int64_t> of_client;
  std::map<uint64_t, int64_t> of_group;
  for (const auto& sequence : running_) {
    ++of_client[sequence->job->request().client];
    ++of_group[sequence->job->request().group];
  }
  return std::ranges::min_element(waiting_, {}, [&](const std::shared_ptr<Job>& job) {
    const JobRequest& request = job->request();
    return std::tuple(of_client[request.client], of_group[request.group]);
  });
}

void Engine::admit() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::erase_if(waiting_, [&](const std::shared_ptr<Job>& job) {
    const End end = abandoned(*job, now);
    if (end == End::kNone) return false;
    count(end);
    job->tell({.end = end});
    return true;
  });
  // Who cannot begin for want of memory keeps its place.
  while (static_cast<int64_t>(running_.size()) < options_.max_batch) {
    if (!paused_.empty()) {
      if (!take_memory(*paused_.front())) return;
      running_.splice(running_.end(), paused_, paused_.begin());
      continue;
    }
    if (waiting_.empty()) return;
    const auto chosen = next_waiting();
    auto sequence = std::make_unique<Sequence>(*chosen);
    if (!take_memory(*sequence)) return;
    const JobRequest& request = sequence->job->request();
    state_.prefix_queries += request.prompt_scores ? 0 : sequence->prompt_length();
    state_.prefix_hits += sequence->place.length;
    state_.prompt_tokens += sequence->prompt_length();
    running_.push_back(std::move(sequence));
    waiting_.erase(chosen);
  }
}

// Takes memory for the rows that are there already; false where there is not enough.
bool Engine::take_memory(Sequence& sequence) {
  const JobRequest& request = sequence.job->request();
  std::vector<int64_t>& blocks = sequence.place.blocks;
  if (!request.prompt_scores) {
    // The last row has to be computed: the first token of the answer comes from it.
    const std::span<const int64_t> all(request.prompt);
    blocks = pool_.take_prefix(all.first(all.size() - 1), regime(sequence.prompt_length()));
  }
  const auto kept = std::ssize(blocks);
  const int64_t wanted = blocks_of(sequence.rows()) - kept;
  // Those that run get the blocks that they will want until it is where it was, or it would have
  // to give its own back before it has written anything.
  int64_t spare = 0;
  for (const auto& other : running_) {
    const int64_t most = blocks_of(std::min(context_, other->most_rows()));
    spare +=
        std::min(most - std::ssize(other->place.blocks), 1 + std::ssize(sequence.ids) / kPiece);
  }
  const auto more = pool_.free() < wanted + spare ? std::nullopt : pool_.take(wanted);
  if (!more) {
    pool_.release(std::exchange(blocks, {}));
    return false;
  }
  blocks.insert(blocks.end(), more->begin(), more->end());
  sequence.place.length = kept * kPiece;
  sequence.place.prompt_rows = sequence.prompt_length();
  if (kept > 0)
    sequence.place.last_token = request.prompt[static_cast<size_t>(sequence.place.length) - 1];
  return true;
}

// A block for the next row of all that write. The first to come always gets one: there is memory
// for a whole context.
void Engine::make_room() {
  for (const auto& sequence : running_) {
    nn::PagedSequence& place = sequence->place;
    if (sequence->next < 0 || place.length < std::ssize(place.blocks) * kPiece) continue;
    auto more = pool_.take(1);
    while (!more && running_.back() != sequence) {
      pause_last();
      more = pool_.take(1);
    }
    if (!more) return pause_last();
    place.blocks.push_back(more->front());
  }
}

void Engine::pause_last() {
  Sequence& sequence = *running_.back();
  pool_.release(sequence.place.blocks);
  sequence.place = {};
  sequence.next = -1;
  sequence.written = 0;
  paused_.splice(paused_.begin(), running_, std::prev(running_.end()));
  const std::lock_guard lock(mutex_);
  ++state_.preemptions;
}

// One piece of a prompt, and one token of every answer.
void Engine::step() {
  make_room();
  const auto reader = std::ranges::find_if(running_, [](const auto& s) { return s->reads(); });
  write_tokens();
  if (reader != running_.end()) read_piece(**reader);
  std::erase_if(running_, [](const auto& sequence) { return sequence->ended; });
}

void Engine::drop_abandoned() {
  const auto now = Clock::now();
  for (Sequences* sequences : {&running_, &paused_}) {
    for (const auto& sequence : *sequences) {
      const End why = abandoned(*sequence->job, now);
      if (why != End::kNone) end(*sequence, {.end = why});
    }
    std::erase_if(*sequences, [](const auto& sequence) { return sequence->ended; });
  }
}

void Engine::read_piece(Sequence& sequence) {
  const JobRequest& request = sequence.job->request();
  const int64_t first = sequence.place.length;
  const int64_t count = std::min(kPiece, sequence.prompt_length() - first);
  const auto begin = request.prompt.begin() + first;
  const std::vector<int64_t> ids(begin, begin + count);
  const auto hidden = model_->extend_paged(
      {torch::tensor(ids, torch::kInt64).unsqueeze(0), {sequence.place}}, cache_)[0];
  sequence.place.length += count;
  sequence.place.last_token = ids.back();
  const auto full = static_cast<size_t>(sequence.place.length / kPiece);
  pool_.keep_prefix(request.prompt, std::span(sequence.place.blocks).first(full),
                    regime(sequence.prompt_length()));
  if (request.prompt_scores) tell_prompt_scores(sequence, hidden, first);
  if (sequence.reads()) return;
  if (request.max_tokens == 0) return end(sequence, {.end = End::kLength});
  const ops::RowInvariance invariance;
  add_token(sequence, model_->project(hidden.narrow(0, count - 1, 1)));
}

// The rows from `first` on say what they think of the tokens behind them.
void Engine::tell_prompt_scores(Sequence& sequence, const torch::Tensor& hidden, int64_t first) {
  if (first < sequence.scored) return;
  sequence.scored = first + hidden.size(0);
  const JobRequest& request = sequence.job->request();
  const auto begin = request.prompt.begin() + first + 1;
  const int64_t count = std::min<int64_t>(hidden.size(0), request.prompt.end() - begin);
  if (count <= 0) return;
  const std::vector<int64_t> ids(begin, begin + count);
  sequence.job->tell(
      {.prompt = score(model_->project(hidden.narrow(0, 0, count)), ids, *request.top)});
}

void Engine::write_tokens() {
  // With some scalings of the positions, lengths of one pass have to be alike.
  std::map<int64_t, std::vector<Sequence*>> alike;
  for (const auto& sequence : running_)
    if (sequence->next >= 0) alike[regime(sequence->place.length + 1)].push_back(sequence.get());
  for (const auto& [regime, together] : alike) write_together(together);
}

void Engine::write_together(const std::vector<Sequence*>& together) {
  nn::PagedRows rows;
  std::vector<int64_t> ids;
  for (const Sequence* sequence : together) {
    ids.push_back(sequence->next);
    rows.sequences.push_back(sequence->place);
  }
  rows.tokens = torch::tensor(ids, torch::kInt64).unsqueeze(1);
  const ops::RowInvariance invariance;
  const auto logits = model_->project(model_->extend_paged(rows, cache_).squeeze(1));
  for (size_t i = 0; i < together.size(); ++i) {
    Sequence& sequence = *together[i];
    ++sequence.place.length;
    sequence.place.last_token = std::exchange(sequence.next, -1);
    add_token(sequence, logits.narrow(0, static_cast<int64_t>(i), 1));
  }
}

void Engine::add_token(Sequence& sequence, const torch::Tensor& logits) {
  if (sequence.written < std::ssize(sequence.ids)) {  // told before
    sequence.next = sequence.ids[static_cast<size_t>(sequence.written++)];
    return;
  }
  const JobRequest& request = sequence.job->request();
  const auto row = logits.to(torch::kCPU, torch::kFloat32);
  Update update;
  try {
    const int64_t id = sequence.writer.next(row);
    update.token = request.top ? score(row, {id}, *request.top)[0] : ScoredToken{.id = id};
  } catch (const std::exception& error) {
    return end(sequence, {.end = End::kFailed, .error = error.what()});
  }
  const int64_t id = update.token->id;
  sequence.ids.push_back(id);
  ++sequence.written;
  {
    const std::lock_guard lock(mutex_);
    ++state_.generated_tokens;
  }
  if (std::ranges::count(request.stop_tokens, id) > 0)
    update.end = End::kStop;
  else if (sequence.written >= request.max_tokens || sequence.place.length >= context_)
    update.end = End::kLength;
  if (update.end != End::kNone) return end(sequence, std::move(update));
  sequence.next = id;
  sequence.job->tell(std::move(update));
}

// Under the lock.
void Engine::count(End end) {
  const bool failed = end == End::kDeadline || end == End::kFailed;
  ++(failed ? state_.failed : state_.finished)[reason(end)];
}

void Engine::end(Sequence& sequence, Update update) {
  pool_.release(sequence.place.blocks);
  sequence.ended = true;
  {
    const std::lock_guard lock(mutex_);
    count(update.end);
  }
  sequence.job->tell(std::move(update));
}

void Engine::fail_all(const std::string& error) {
  for (const auto& sequence : running_)
    if (!sequence->ended) end(*sequence, {.end = End::kFailed, .error = error});
  running_.clear();
  const std::lock_guard lock(mutex_);
  if (!stopping_) return;
  for (const auto& sequence : paused_) sequence->job->tell({.end = End::kFailed, .error = error});
  paused_.clear();
  for (const auto& job : waiting_) job->tell({.end = End::kFailed, .error = error});
  waiting_.clear();
}

}  // namespace tempera::serve
