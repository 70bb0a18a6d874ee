#include "tempera/study/pool.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <iostream>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/io/json.h"
#include "tempera/ops/torch.h"

namespace tempera::study {
namespace {

constexpr uint64_t kLargestResult = 64 << 20;

// Between two looks at the other ranks.
constexpr dist::Seconds kBetweenLooks{0.5};

// What a rank did so far of the pieces that it took.
struct Done {
  double share = 0;  // of all: 1 for each that is finished
  int64_t finished = 0;
  int64_t steps = 0;
  std::string label;  // of what moved last

  static void fields(auto& self, auto&& field) {
    field("share", self.share);
    field("finished", self.finished);
    field("steps", self.steps);
    field("label", self.label);
  }
};

// Of a piece whose training was told to end.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped") {}
};

// Threads of its own, each of which computes alone: small models gain nothing from more.
class Pool {
 public:
  Pool(const std::string& title, const std::vector<Piece>& pieces, dist::World& world)
      : pieces_(pieces),
        shares_(pieces.size()),
        steps_(pieces.size()),
        before_(static_cast<int64_t>(std::ranges::count_if(pieces, is_finished))),
        jobs_(world) {
    if (world.is_first()) show_before(title);
  }

  void run(int64_t threads) {
    working_ = std::clamp<int64_t>(threads, 1, static_cast<int64_t>(pieces_.size()));
    std::vector<std::thread> pool;
    for (int64_t left = working_; left > 0; --left)
      pool.push_back(start_worker([this] { serve(); }));
    try {
      watch();
    } catch (...) {
      fail(std::current_exception());
    }
    for (auto& thread : pool) thread.join();
    if (progress_) progress_->finish();
    if (error_) std::rethrow_exception(error_);
    if (const int signal = jobs_.stop(0))
      throw Interrupted(signal, "interrupted; finished models are kept, the same command goes on");
  }

 private:
  static bool is_finished(const Piece& piece) { return std::filesystem::exists(piece.file); }

  void show_before(const std::string& title) {
    const auto all = static_cast<int64_t>(pieces_.size());
    if (before_ > 0)
      std::cerr << before_ << " of " << all
                << " models were finished before; --fresh trains them again\n";
    if (before_ == all) return;
    progress_.emplace(title, all, "steps");
    progress_->start_at_share(share({}), counted({}));
  }

  // Of a thread.
  void serve() {
    try {
      for (size_t i = next_++; i < pieces_.size() && !stopping_; i = next_++) {
        if (is_finished(pieces_[i]) || !jobs_.claim(std::to_string(i))) continue;
        make(i);
        jobs_.finish();
      }
    } catch (const Stopped&) {
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    --working_;
    changed_.notify_all();
  }

  void make(size_t index) {
    Json result{{"build", build_id()}};
    result.update(
        pieces_[index].make([&](double share, int64_t steps) { report(index, share, steps); }));
    write_file(pieces_[index].file, result.dump() + "\n");
    const std::lock_guard lock(mutex_);
    shares_[index] = 1;
    ++done_.finished;
  }

  void report(size_t index, double share, int64_t steps) {
    if (stopping_) throw Stopped();
    const std::lock_guard lock(mutex_);
    shares_[index] = share;
    steps_[index] = steps;
    done_.label = pieces_[index].label;
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    stopping_ = true;
    changed_.notify_all();
  }

  // Until no rank works any more, or one has failed.
  void watch() {
    for (bool ended = false; !jobs_.all_ended();) {
      if (jobs_.stop(InterruptGuard::signal()) != 0) stopping_ = true;
      jobs_.say(as_json(so_far()).dump());
      if (progress_) show();
      if (!ended && (ended = await_change())) {
        if (error_) return;
        jobs_.say(as_json(so_far()).dump());
        jobs_.end();
      } else if (ended) {
        std::this_thread::sleep_for(kBetweenLooks);
      }
    }
    if (progress_) show();
  }

  // True where this rank's threads have ended.
  bool await_change() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kBetweenLooks, [this] { return working_ == 0; });
  }

  Done so_far() {
    const std::lock_guard lock(mutex_);
    done_.share = std::reduce(shares_.begin(), shares_.end());
    done_.steps = std::reduce(steps_.begin(), steps_.end());
    return done_;
  }

  void show() {
    Done all;
    for (const std::string& said : jobs_.said()) {
      if (said.empty()) continue;
      const Done one = read_as<Done>(Json::parse(said), "a rank's progress");
      all.share += one.share;
      all.finished += one.finished;
      all.steps += one.steps;
      if (!one.label.empty()) all.label = one.label;
    }
    const bool complete = before_ + all.finished == static_cast<int64_t>(pieces_.size());
    progress_->update_share(share(all), counted(all), all.steps, complete ? "" : all.label);
  }

  double share(const Done& done) const {
    return (static_cast<double>(before_) + done.share) / static_cast<double>(pieces_.size());
  }

  std::string counted(const Done& done) const {
    return concat(before_ + done.finished, "/", pieces_.size(), " models");
  }

  const std::vector<Piece>& pieces_;
  std::vector<double> shares_;  // of this rank's
  std::vector<int64_t> steps_;
  const int64_t before_;  // finished in an earlier call
  dist::SharedJobs jobs_;
  std::optional<Progress> progress_;  // of the first rank
  std::mutex mutex_;
  std::condition_variable changed_;
  Done done_;
  int64_t working_ = 0;           // threads
  std::atomic<size_t> next_ = 0;  // that this rank asks for
  std::atomic<bool> stopping_ = false;
  std::exception_ptr error_;
};

void check_build(const std::filesystem::path& file) {
  const std::string made_by = read_json(file).value("build", "an earlier version");
  TEMPERA_CHECK(made_by == build_id(), file.string(), " was made by another build of tempera (",
                made_by, "; this one is ", build_id(), "); give --fresh to begin anew");
}

}  // namespace

void run_pieces(const std::string& title, const std::vector<Piece>& pieces, int64_t threads,
                dist::World& world) {
  for (const Piece& piece : pieces)
    if (std::filesystem::exists(piece.file)) check_build(piece.file);
  Pool(title, pieces, world).run(workers(threads, world));
}

std::thread start_worker(std::function<void()> work) {
  std::optional<c10::Device> gpu;
  if (torch::cuda::device_count() > 0) gpu = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
  return std::thread([gpu, work = std::move(work)] {
    at::set_num_threads(1);
    if (gpu) c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(*gpu);
    work();
  });
}

int64_t workers(int64_t threads, const dist::World& world) {
  return threads > 0 ? threads : world.cores();
}

Json read_json(const std::filesystem::path& file) {
  return io::parse_ordered_json(read_file(file, kLargestResult), file.string());
}

}  // namespace tempera::study
