#include "tempera/study/scaling/conductor.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/study/scaling/budget.h"
#include "tempera/study/scaling/estimate.h"

namespace tempera::study::scaling {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Of the time that there is: the rest is for what was not measured.
constexpr double kUsedShare = 0.9;
constexpr double kUsedMemory = 0.9;
// After it was asked to stop, a worker may still finish what it measures.
constexpr double kGraceSeconds = 30;
constexpr double kWaitSeconds = 0.5;
constexpr uint64_t kLargestFile = 1 << 24;

struct Running {
  Job job;
  double seconds = 0;  // that it takes
  double share = 0;    // done
  double memory = 0;
};

// A signal came before the training began.
struct Stopped {};

class Conductor {
 public:
  Conductor(const Plan& plan, const WorkerSetup& setup, const RunOptions& options,
            dist::World& world)
      : plan_(plan),
        setup_(setup),
        options_(options),
        world_(world),
        vocabulary_(setup.source->vocabulary()),
        results_(setup.jobs, options.any_build) {}

  std::optional<Progressed> run() {
    survey();
    if (world_.is_first()) {
      results_.remove_leftovers(known_, setup_.keep_models);
      if (const size_t done = known_.size() - pending_.size(); done > 0)
        std::cerr << done << " of " << known_.size() + waiting_.size()
                  << " models were finished before; --fresh trains them again\n";
    }
    jobs_.emplace(world_);
    if (!pending_.empty()) train_pending();
    await_others();
    if (const int signal = jobs_->stop(0))
      throw Interrupted(signal, concat("interrupted; finished models are kept, and the state of "
                                       "those that were being trained. To go on:\n  ",
                                       options_.command));
    if (!world_.is_first()) return std::nullopt;
    if (!pending_.empty())
      notes_.push_back(concat(pending_.size() + waiting_.size(),
                              " models are not done yet; the same command goes on"));
    for (auto& line : left_out(plan_, tuning_)) notes_.push_back(std::move(line));
    return Progressed{tuning_, done_jobs(), pending_.size() + waiting_.size(), notes_};
  }

 private:
  void train_pending() {
    Workers workers(1, [this](LineSocket& parent) { serve(setup_, parent); });
    workers_ = &workers;
    try {
      prepare();
      work();
    } catch (const Stopped&) {
    }
  }

  // Other ranks may work for longer than this one.
  void await_others() {
    jobs_->end();
    while (!jobs_->all_ended()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kWaitSeconds));
      take_results();
      show();
    }
    take_results();
    show();
    if (progress_) progress_->finish();
  }

  void show() {
    if (progress_) progress_->update_share(share(), counted(), tokens_now(), what_runs());
  }

  void note(const std::string& line) {
    if (progress_) progress_->note(line);
  }

  // What is known to be done now, in the order in which it is begun.
  void survey() {
    tuning_ = tune(plan_, [this](const Job& job) { return results_.find(job); });
    pending_.clear();
    waiting_.clear();
    known_.clear();
    for (const Job& job : tuning_.jobs) add(job);
    for (const Cell& cell : plan_.cells) {
      const Tuning* tuning = tuning_.find(cell);
      if (!tuning)
        waiting_.push_back(cell);
      else if (tuning->constant > 0)
        add({.cell = cell, .learning_rate = tuning->rate_for(cell.shape)});
    }
    if (!speeds_known_) return;
    std::ranges::stable_sort(pending_, [this](const Job& a, const Job& b) {
      const auto rank = [this](const Job& job) {
        return std::pair(job.purpose != Purpose::kSweep, -seconds(job));
      };
      return rank(a) < rank(b);
    });
  }

  void add(const Job& job) {
    known_.push_back(job);
    if (!results_.find(job)) pending_.push_back(job);
  }

  double seconds(const Job& job) const { return speeds_.seconds(job, plan_.data); }

  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // Starts the workers and learns how fast they are.
  void prepare() {
    const Json hello = first_word(0).at("hello");
    device_ = hello.at("device");
    memory_ = hello.at("memory").get<double>();
    if (device_ != "cuda") memory_ /= static_cast<double>(world_.local_size());
    const int64_t usual = device_ == "cuda" ? kJobsOnGpu : world_.cores();
    const auto most = static_cast<int64_t>(pending_.size() + waiting_.size());
    const int64_t jobs = std::min(options_.jobs > 0 ? options_.jobs : usual, most);
    workers_->grow(static_cast<size_t>(jobs));
    for (size_t i = 1; i < workers_->size(); ++i) first_word(i);
    running_.resize(workers_->size());
    measure_speeds();
    speeds_known_ = true;
    survey();
    choose_cells();
    if (world_.is_first()) tell();
  }

  // The next thing that one worker says, for those that are asked in turn.
  Json first_word(size_t worker) {
    while (true) {
      if (jobs_->stop(InterruptGuard::signal()) != 0) throw Stopped();
      for (const auto& news : workers_->wait(kWaitSeconds)) {
        for (const auto& line : news.lines) words_[news.worker].push_back(Json::parse(line));
        TEMPERA_CHECK(!news.ended, "a worker ended ", news.how, " before it had work");
      }
      if (words_[worker].empty()) continue;
      Json word = words_[worker].front();
      words_[worker].erase(words_[worker].begin());
      TEMPERA_CHECK(!word.contains("failed"), word.value("failed", ""));
      return word;
    }
  }

  // Every shape by all workers at the same time, each with another method.
  void measure_speeds() {
    const fs::path file = setup_.jobs.parent_path() / "speed.json";
    const auto workers = static_cast<int64_t>(workers_->size());
    if (fs::exists(file)) speeds_.load(read_file(file, kLargestFile), workers, device_);
    std::optional<Progress> progress;
    if (world_.is_first())
      progress.emplace("measure the speed of", static_cast<int64_t>(shapes().size()), "shapes");
    int64_t done = 0;
    for (const Cell& cell : shapes()) {
      if (!speeds_.has(cell)) probe(cell);
      if (progress) progress->update(++done);
    }
    if (!progress) return;
    progress->finish();
    write_file(file, speeds_.dump(workers, device_));
  }

  std::vector<Cell> shapes() const {
    std::vector<Cell> list;
    std::set<Speeds::Key> seen;
    for (const Cell& cell : plan_.cells)
      if (seen.insert(Speeds::key(cell)).second) list.push_back(cell);
    return list;
  }

  void probe(Cell cell) {
    double sum = 0;
    for (size_t i = 0; i < workers_->size(); ++i) {
      cell.method = plan_.methods[i % plan_.methods.size()];
      workers_->send(i, Json{{"probe", to_json(Job{.cell = cell, .learning_rate = 1e-4})}}.dump());
    }
    for (size_t i = 0; i < workers_->size(); ++i)
      sum += first_word(i).at("seconds_per_token").get<double>();
    speeds_.set(cell, sum / static_cast<double>(workers_->size()));
  }

  // What a bound of time has room for.
  void choose_cells() {
    if (options_.seconds <= 0) return;
    std::vector<Candidate> candidates;
    for (const Cell& cell : plan_.cells) {
      const Job job{.cell = cell};
      const Tuning* tuning = tuning_.find(cell);
      const bool done =
          tuning && tuning->constant > 0 &&
          results_.find({.cell = cell, .learning_rate = tuning->rate_for(cell.shape)});
      candidates.push_back({cell, done ? 0 : seconds(job)});
    }
    double room = kUsedShare * (options_.seconds - elapsed()) * static_cast<double>(all_workers());
    for (const Job& job : pending_)
      if (job.purpose != Purpose::kCell) room -= seconds(job);
    const auto stays = choose(candidates, room);
    int64_t dropped = 0;
    for (size_t i = 0; i < candidates.size(); ++i)
      if (!stays[i]) {
        dropped_.push_back(candidates[i].cell);
        ++dropped;
      }
    if (dropped > 0)
      notes_.push_back(concat(dropped, " of ", candidates.size(),
                              " models are left for another call: --seconds ", options_.seconds,
                              " has no room for them; the least informative are left out first"));
  }

  bool is_dropped(const Job& job) const {
    return job.purpose == Purpose::kCell && std::ranges::find(dropped_, job.cell) != dropped_.end();
  }

  // Of all ranks, which have equally many.
  int64_t all_workers() const { return static_cast<int64_t>(running_.size()) * world_.size(); }

  // What is ahead, before it begins.
  void tell() {
    double all = 0, most_memory = 0, tokens = 0;
    size_t count = 0;
    const auto account = [&](const Job& job) {
      if (is_dropped(job)) return;
      ++count;
      all += seconds(job);
      tokens += static_cast<double>(job.cell.tokens);
      most_memory = std::max(most_memory, memory_estimate(job.cell, vocabulary_));
    };
    for (const Job& job : pending_) account(job);
    for (const Cell& cell : waiting_) account({.cell = cell});
    const auto workers = static_cast<double>(all_workers());
    std::cerr << "scaling: " << count << " models, " << quantity_text(tokens) << " tokens, "
              << all_workers() << " at a time; " << about_text(all / workers) << "; at most about "
              << quantity_text(most_memory) << " bytes of memory a model\n";
    for (const auto& note : notes_) std::cerr << "  " << note << "\n";
  }

  void work() {
    if (world_.is_first()) {
      progress_.emplace("scaling", static_cast<int64_t>(known_.size()), "tokens");
      progress_->start_at_share(share(), counted());
    }
    while (true) {
      // Before the results are looked at: those of all that is not under way are there then.
      const bool some_work = !stopping_at_ && jobs_->under_way() > 0;
      take_results();
      if (!stopping_at_) give_work();
      const bool works =
          std::ranges::any_of(running_, [](const auto& job) { return job.has_value(); });
      // What others do may lead to more.
      if (!works && !some_work) break;
      for (const auto& news : workers_->wait(kWaitSeconds)) hear(news);
      show();
      stop_in_time();
      if (stopping_at_ && elapsed() > *stopping_at_ + kGraceSeconds) break;
    }
  }

  // What other ranks have finished.
  void take_results() {
    if (world_.alone()) return;
    std::vector<Job> done;
    for (const Job& job : pending_)
      if (!is_running(job) && fs::exists(result_file(setup_.jobs, job))) done.push_back(job);
    for (const Job& job : done) take_result(job);
    if (!done.empty()) survey();
  }

  void take_result(const Job& job) {
    results_.read(job);
    tokens_ += job.cell.tokens;
    const JobResult& result = *results_.find(job);
    if (result.outcome != Outcome::kDone)
      note(concat(job.label(), ": ", name_of(result.outcome), ": ", result.reason));
  }

  void stop_in_time() {
    const bool late = options_.seconds > 0 && elapsed() > options_.seconds;
    if (stopping_at_ || (!late && jobs_->stop(InterruptGuard::signal()) == 0)) return;
    stopping_at_ = elapsed();
    workers_->ask_to_stop();
  }

  void give_work() {
    for (size_t worker = 0; worker < running_.size(); ++worker) {
      while (!running_[worker]) {
        const auto job = next_job();
        if (!job) return;
        if (own_.contains(job->id()) || jobs_->claim(job->id()))
          begin(worker, *job);
        else
          of_others_.insert(job->id());
      }
    }
  }

  bool is_running(const Job& job) const {
    return std::ranges::any_of(running_, [&](const auto& now) { return now && now->job == job; });
  }

  bool has_memory_for(const Job& job) const {
    double used = memory_estimate(job.cell, vocabulary_);
    bool alone = true;
    for (const auto& now : running_)
      if (now) {
        used += now->memory;
        alone = false;
      }
    return alone || used <= kUsedMemory * memory_;
  }

  // The longest that fits into the time and the memory. One that fits into no call of this length
  // goes last, and as far as it gets.
  std::optional<Job> next_job() const {
    const double left = options_.seconds - elapsed();
    for (const bool too_long : {false, true})
      for (const Job& job : pending_) {
        if (is_running(job) || of_others_.contains(job.id()) || !has_memory_for(job)) continue;
        if (options_.seconds <= 0) return job;
        const bool fits_never = seconds(job) > kUsedShare * options_.seconds;
        const bool fits = !is_dropped(job) && kUsedShare * left >= seconds(job);
        if (too_long ? fits_never : fits) return job;
      }
    return std::nullopt;
  }

  void begin(size_t worker, const Job& job) {
    const double step =
        speeds_.seconds_per_token(job.cell) * static_cast<double>(job.cell.step_tokens);
    const auto every = static_cast<int64_t>(options_.save_seconds / step);
    own_.insert(job.id());
    // One whose process was ended, perhaps because of its memory, gets along with less.
    const bool again = lost_.contains(job.id());
    const int64_t micro_batch = again ? std::max<int64_t>(1, job.cell.batch() / 4) : 0;
    running_[worker] = {
        .job = job, .seconds = seconds(job), .memory = memory_estimate(job.cell, vocabulary_)};
    workers_->send(worker, Json{{"job", to_json(job)},
                                {"micro_batch", micro_batch},
                                {"save_every", std::max<int64_t>(1, every)}}
                               .dump());
  }

  void hear(const Workers::News& news) {
    auto& now = running_[news.worker];
    for (const auto& line : news.lines) {
      const Json word = Json::parse(line);
      if (word.contains("note")) note(word.at("note").get<std::string>());
      if (word.contains("failed")) throw Error(word.at("failed").get<std::string>());
      if (word.contains("share") && now) now->share = word.at("share");
      if (word.contains("stopped")) now.reset();
      if (word.contains("done") && now) {
        const Running done = *now;
        now.reset();
        finish(done);
      }
    }
    if (!news.ended) return;
    if (now && !stopping_at_) lose(*now, news.how);
    now.reset();
    if (!stopping_at_) {
      workers_->restart(news.worker);
      words_[news.worker].clear();
    }
  }

  void finish(const Running& done) {
    take_result(done.job);
    survey();
    jobs_->finish();
  }

  void lose(const Running& lost, const std::string& how) {
    const Job& job = lost.job;
    if (fs::exists(result_file(setup_.jobs, job))) {  // it got as far as that
      if (!setup_.keep_models) fs::remove_all(job_folder(setup_.jobs, job));
      finish(lost);
      return;
    }
    if (lost_.insert(job.id()).second) {
      note(concat(job.label(), ": its process ended ", how, "; once more"));
      return;
    }
    JobResult result{.job = job, .outcome = Outcome::kLost};
    result.reason = concat("its process ended ", how, ", twice");
    result.build = build_id();
    write_file(result_file(setup_.jobs, job), to_json(result).dump() + "\n");
    finish(lost);
  }

  // Of the time that everything takes: what was done before counts as if it had been done here.
  double share() const {
    double left = 0, all = 0;
    for (const Job& job : pending_) left += seconds(job);
    for (const Cell& cell : waiting_) left += seconds({.cell = cell});
    for (const auto& now : running_)
      if (now) left -= now->share * now->seconds;
    all = left;
    for (const Job& job : known_)
      if (results_.find(job)) all += seconds(job);
    return all > 0 ? std::clamp(1 - left / all, 0.0, 1.0) : 1;
  }

  std::string counted() const {
    return concat(known_.size() - pending_.size(), "/", known_.size() + waiting_.size(), " models");
  }

  int64_t tokens_now() const {
    double now = 0;
    for (const auto& job : running_)
      if (job) now += job->share * static_cast<double>(job->job.cell.tokens);
    return tokens_ + static_cast<int64_t>(now);
  }

  std::string what_runs() const {
    for (const auto& now : running_)
      if (now) return now->job.label();
    return "";
  }

  std::vector<JobResult> done_jobs() const {
    std::vector<JobResult> list;
    for (const Job& job : known_)
      if (const JobResult* result = results_.find(job)) list.push_back(*result);
    return list;
  }

  const Plan& plan_;
  const WorkerSetup& setup_;
  const RunOptions& options_;
  dist::World& world_;
  std::optional<dist::SharedJobs> jobs_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t vocabulary_;
  ResultFolder results_;
  TuningState tuning_;
  std::vector<Job> pending_;   // known, and not done
  std::vector<Cell> waiting_;  // for their learning rate
  std::vector<Job> known_;     // done or not
  std::vector<Cell> dropped_;
  std::vector<std::string> notes_;
  Workers* workers_ = nullptr;
  std::map<size_t, std::vector<Json>> words_;
  std::string device_;
  double memory_ = 0;
  Speeds speeds_;
  bool speeds_known_ = false;
  std::vector<std::optional<Running>> running_;
  std::set<std::string> lost_;
  std::set<std::string> own_, of_others_;  // what this rank has claimed, and what it did not get
  std::optional<Progress> progress_;       // of the first rank
  int64_t tokens_ = 0;
  std::optional<double> stopping_at_;
};

}  // namespace

std::optional<Progressed> run_study(const Plan& plan, const WorkerSetup& setup,
                                    const RunOptions& options, dist::World& world) {
  return Conductor(plan, setup, options, world).run();
}

}  // namespace tempera::study::scaling
