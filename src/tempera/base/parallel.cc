#include "tempera/base/parallel.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tempera/base/error.h"

namespace tempera {
namespace {

class ThreadPool final : public Parallel {
 public:
  explicit ThreadPool(int workers) : workers_(workers) {
    threads_.reserve(static_cast<size_t>(workers - 1));
    try {
      for (int worker = 1; worker < workers; ++worker)
        threads_.emplace_back([this, worker] { serve(worker); });
    } catch (const std::system_error& error) {
      stop();  // a thread that is not joined would end the process
      throw Error(concat("workers: ", workers, " given, but thread ", threads_.size() + 1,
                         " could not be started (", error.what(), "): ask for fewer"));
    }
  }

  ~ThreadPool() override { stop(); }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const override { return workers_; }

  void run(int64_t tasks, FunctionRef<void(int64_t, int)> body) override {
    {
      const std::lock_guard lock(mutex_);
      // Both would give two tasks the same worker index, and so the same scratch memory.
      TEMPERA_CHECK(body_ == nullptr,
                    "a thread pool was asked to run while it runs: use one pool a calling thread, "
                    "and none inside a task");
      body_ = &body;
      tasks_ = tasks;
      next_ = 0;
      busy_ = workers_ - 1;
      ++generation_;
    }
    wake_.notify_all();
    work(0);
    // Every worker takes part in every run, if only to find nothing left: none can wake up late
    // with an old body.
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    body_ = nullptr;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void work(int worker) {
    try {
      for (int64_t task = next_++; task < tasks_; task = next_++) (*body_)(task, worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      next_ = tasks_;  // what has not begun need not begin
    }
  }

  void serve(int worker) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
      }
      work(worker);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  const int workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const FunctionRef<void(int64_t, int)>* body_ = nullptr;  // null: no run under way
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_ = 0;
  int busy_ = 0;
  uint64_t generation_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace

std::unique_ptr<Parallel> make_thread_pool(int workers) {
  TEMPERA_CHECK(workers >= 1 && workers <= 4096, "workers: ", workers,
                " given, 1 to 4096 expected");
  return std::make_unique<ThreadPool>(workers);
}

}  // namespace tempera
