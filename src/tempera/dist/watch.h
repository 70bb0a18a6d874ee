#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/dist/c10d.h"
#include "tempera/dist/environment.h"

namespace tempera::dist {

// The work of all ranks ends because of one of them; the message names it.
class RankFailure : public Error {
 public:
  RankFailure(const std::string& message, bool silent) : Error(message), silent_(silent) {}
  // Another rank says it: one message is enough for all.
  bool silent() const { return silent_; }

 private:
  bool silent_;
};

// Of a rank that a signal reaches before all are there.
inline constexpr const char* kBeforeMeeting =
    "interrupted before the ranks had met; nothing was written";

// Why the ranks stop, and who found out.
struct Failure {
  int64_t by = 0;  // a rank, or kLauncher
  std::string message;
};
inline constexpr int64_t kLauncher = -1;
// Notes it in the store, unless something is noted; gives what stands there.
Failure note_failure(Store& store, const Failure& failure);
std::optional<Failure> noted_failure(Store& store);

// Of all keys at the meeting point.
inline constexpr const char* kMeetingPrefix = "tempera";

// The number of the attempt that this rank takes part in, and whose keys are under its name in the
// store. The launchers of several machines each count for themselves, and what earlier attempts
// wrote stands in the store: rank 0 begins an attempt, and the others wait until one has begun
// whose rank 0 lives. Throws Error where none does.
int64_t join_attempt(Store& store, const Place& place, Seconds timeout);
std::string attempt_name(int64_t attempt);

// Signs of life. Every rank writes a sign twice a second and reads that of the next rank, so that
// one which dies, stops or loses its network is found by another however many they are. Once a
// failure is noted, a rank that does not come to know of it by itself, as it waits for ever for the
// lost one, is ended.
class Watch {
 public:
  struct Options {
    Seconds timeout{300};
    bool all_speak = false;
  };
  // The store is this object's alone: a rank that waits in another's would give no signs.
  Watch(std::unique_ptr<Store> store, const Place& place, const Options& options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Returns when all ranks are there. Throws Error that names the missing ones.
  void meet();
  // Another exchange between the ranks begins.
  void count_exchange();
  // Why an exchange failed, found out within seconds.
  RankFailure explain(const std::string& words);
  // This rank fails. Silent where another rank gave the same message before.
  RankFailure report(const std::string& message);
  // Throws where a failure is noted.
  void check();
  // The work is done: a rank that ends from now on has not failed.
  void leave();

 private:
  struct Sign {
    int64_t beats = 0, exchanges = 0;
    bool operator==(const Sign&) const = default;
  };

  void run();
  void look();
  // The rank whose sign this one reads has given none for too long.
  void look_at_next();
  // Where this rank has waited for too long: for whom.
  void look_at_late_ones();
  std::optional<int64_t> rank_behind();
  std::string hang_of(int64_t rank);
  void end_process(const Failure& failure);
  bool has_left(int64_t rank);
  Failure lost_meeting_point() const;
  std::optional<Sign> sign_of(int64_t rank);
  std::vector<std::optional<Sign>> signs();
  std::string name_of(int64_t rank);
  RankFailure as_error(const Failure& failure) const;
  bool speaks(const Failure& failure) const;
  Failure find_lost(const std::string& words);
  bool sleep(Seconds time);

  std::unique_ptr<Store> store_;
  Place place_;
  Options options_;
  std::atomic<int64_t> exchanges_{0};
  std::atomic<std::chrono::steady_clock::time_point> last_exchange_;
  std::atomic<bool> known_{false};  // the rank knows by itself that the work failed
  Sign own_, last_;                 // of the thread
  std::chrono::steady_clock::time_point last_change_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

// Writes the message where torchrun looks for the reason of a failure (TORCHELASTIC_ERROR_FILE), if
// anywhere.
void write_error_file(const std::string& message);

}  // namespace tempera::dist
