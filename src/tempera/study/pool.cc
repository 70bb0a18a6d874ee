#include "tempera/study/pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/progress.h"
#include "tempera/io/json.h"

namespace tempera::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestResult = 64 << 20;

// Threads of its own, each of which computes alone: small models gain nothing from more.
class Pool {
 public:
  Pool(const std::string& title, std::vector<const Piece*> pieces)
      : pieces_(std::move(pieces)),
        shares_(pieces_.size()),
        progress_(title, static_cast<int64_t>(pieces_.size()) * 1000, "‰") {}

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
        const Json result = pieces_[i]->make([&](double share) { report(i, share); });
        write_file(pieces_[i]->file, result.dump() + "\n");
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        stopping_ = true;
      }
    }
  }

  void report(size_t index, double share) {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error("stopped");
    if (const int signal = InterruptGuard::signal())
      throw Interrupted(signal, "interrupted; finished models are kept, the same command goes on");
    shares_[index] = share;
    double done = 0;
    for (const double s : shares_) done += s;
    progress_.update(static_cast<int64_t>(done * 1000), pieces_[index]->label);
  }

  const std::vector<const Piece*> pieces_;
  std::vector<double> shares_;
  std::mutex mutex_;
  Progress progress_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace

void run_pieces(const std::string& title, const std::vector<Piece>& pieces, int64_t threads) {
  std::vector<const Piece*> left;
  for (const Piece& piece : pieces)
    if (!std::filesystem::exists(piece.file)) left.push_back(&piece);
  if (left.empty()) return;
  const InterruptGuard guard;
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  Pool(title, left).run(threads > 0 ? threads : cores);
}

Json read_result(const std::filesystem::path& file) {
  const std::string text = read_file(file, kLargestResult);
  io::parse_json(text, file.string());  // says what is wrong, with the file's name
  return Json::parse(text);
}

}  // namespace tempera::study
