#include "tempera/study/pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iostream>
#include <mutex>
#include <numeric>
#include <thread>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/io/json.h"

namespace tempera::study {
namespace {

constexpr uint64_t kLargestResult = 64 << 20;

// Threads of its own, each of which computes alone: small models gain nothing from more.
class Pool {
 public:
  // `before`: how many more there are that were finished before.
  Pool(const std::string& title, std::vector<const Piece*> pieces, size_t before)
      : pieces_(std::move(pieces)),
        shares_(pieces_.size()),
        steps_(pieces_.size()),
        finished_(before),
        all_(pieces_.size() + before),
        progress_(title, static_cast<int64_t>(all_), "steps") {
    progress_.start_at_share(share(), counted());
  }

  void run(int64_t threads) {
    std::vector<std::thread> pool;
    for (int64_t i = 0; i < std::min<int64_t>(threads, static_cast<int64_t>(pieces_.size())); ++i)
      pool.emplace_back([this] { serve(); });
    for (auto& thread : pool) thread.join();
    progress_.finish();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void serve() {
    at::set_num_threads(1);
    for (size_t i = next_++; i < pieces_.size() && !stopping_; i = next_++) {
      try {
        Json result{{"build", build_id()}};
        result.update(
            pieces_[i]->make([&](double share, int64_t steps) { report(i, share, steps); }));
        write_file(pieces_[i]->file, result.dump() + "\n");
        finish(i);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        stopping_ = true;
      }
    }
  }

  void report(size_t index, double share, int64_t steps) {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error("stopped");
    if (const int signal = InterruptGuard::signal())
      throw Interrupted(signal, "interrupted; finished models are kept, the same command goes on");
    shares_[index] = share;
    steps_[index] = steps;
    show(pieces_[index]->label);
  }

  void finish(size_t index) {
    const std::lock_guard lock(mutex_);
    shares_[index] = 1;
    ++finished_;
    show(finished_ < all_ ? pieces_[index]->label : "");
  }

  void show(const std::string& label) {
    const int64_t steps = std::reduce(steps_.begin(), steps_.end());
    progress_.update_share(share(), counted(), steps, label);
  }

  double share() const {
    const auto before = static_cast<double>(all_ - pieces_.size());
    return std::reduce(shares_.begin(), shares_.end(), before) / static_cast<double>(all_);
  }

  std::string counted() const { return concat(finished_, "/", all_, " models"); }

  const std::vector<const Piece*> pieces_;
  std::vector<double> shares_;
  std::vector<int64_t> steps_;
  size_t finished_;
  const size_t all_;
  std::mutex mutex_;
  Progress progress_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopping_ = false;
  std::exception_ptr error_;
};

void check_build(const std::filesystem::path& file) {
  const std::string made_by = read_json(file).value("build", "an earlier version");
  TEMPERA_CHECK(made_by == build_id(), file.string(), " was made by another build of tempera (",
                made_by, "; this one is ", build_id(), "); give --fresh to begin anew");
}

}  // namespace

void run_pieces(const std::string& title, const std::vector<Piece>& pieces, int64_t threads) {
  std::vector<const Piece*> left;
  for (const Piece& piece : pieces)
    if (std::filesystem::exists(piece.file))
      check_build(piece.file);
    else
      left.push_back(&piece);
  if (const size_t before = pieces.size() - left.size(); before > 0)
    std::cerr << before << " of " << pieces.size()
              << " models were finished before; --fresh trains them again\n";
  if (left.empty()) return;
  const InterruptGuard guard;
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  Pool(title, left, pieces.size() - left.size()).run(threads > 0 ? threads : cores);
}

Json read_json(const std::filesystem::path& file) {
  return io::parse_ordered_json(read_file(file, kLargestResult), file.string());
}

}  // namespace tempera::study
