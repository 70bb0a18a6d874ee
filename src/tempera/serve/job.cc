#include "tempera/serve/job.h"

namespace tempera::serve {

std::optional<Update> Job::next(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!told_.wait_for(lock, patience, [this] { return !updates_.empty(); })) return {};
  Update update = std::move(updates_.front());
  updates_.pop_front();
  return update;
}

void Job::cancel(End reason) {
  End none = End::kNone;
  cancelled_.compare_exchange_strong(none, reason);
}

void Job::tell(Update update) {
  {
    const std::lock_guard lock(mutex_);
    updates_.push_back(std::move(update));
  }
  told_.notify_one();
}

}  // namespace tempera::serve
