#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tempera::serve {

// A lock for which all who want it take turns in the order in which they came: who gives it up and
// takes it again at once cannot keep the others waiting.
class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t mine = next_++;
    changed_.wait(lock, [&] { return mine == current_; });
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      ++current_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, current_ = 0;
};

// Of all models of the process, which compute one at a time: their threads would only hold each
// other up.
Turns& compute_turns();

}  // namespace tempera::serve
