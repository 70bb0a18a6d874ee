#include "tempera/dist/watch.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"

namespace tempera::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kBetweenSigns{0.5};
// Longer than any machine under load keeps a thread from running.
constexpr Seconds kMostSilence{30};
// To see who still gives signs.
constexpr Seconds kObservation{2};
// For a rank to find by itself what the others know.
constexpr Seconds kGrace{5};
constexpr const char* kFailed = "failed";
constexpr const char* kAttempts = "attempts";

std::string machine() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string key(const char* what, int64_t rank) { return concat(what, "/", rank); }

std::string listed(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace

Failure note_failure(Store& store, const Failure& failure) {
  store.set_first(kFailed, concat(failure.by, " ", failure.message));
  return noted_failure(store).value_or(failure);
}

std::optional<Failure> noted_failure(Store& store) {
  const auto text = store.find(kFailed);
  if (!text) return std::nullopt;
  const size_t space = text->find(' ');
  return Failure{std::strtoll(text->c_str(), nullptr, 10), text->substr(space + 1)};
}

std::string attempt_name(int64_t attempt) { return concat("attempt_", attempt); }

int64_t join_attempt(Store& store, const Place& place, Seconds timeout) {
  if (place.rank == 0) return store.add(kAttempts, 1);
  const auto end = Clock::now() + timeout;
  std::pair<int64_t, std::optional<std::string>> before;
  do {
    const int64_t attempt = store.add(kAttempts, 0);
    const auto find = [&](const char* what, int64_t rank) {
      return store.find(concat(attempt_name(attempt), "/", key(what, rank)));
    };
    std::pair now(attempt, find("sign", 0));
    const bool moves = before.second && now.first == before.first && now.second != before.second;
    // An attempt that this rank was in is over, though the others may not know yet.
    if (moves && !find("name", place.rank)) return attempt;
    before = std::move(now);
    stop_if_interrupted(kBeforeMeeting);
    std::this_thread::sleep_for(Seconds(0.2));
  } while (Clock::now() < end);
  throw Error(concat("rank 0 did not come within ", timeout.count(), " s to where the ranks meet (",
                     place.address, ":", place.port,
                     "); see what became of it, or give --rank-timeout more"));
}

void write_error_file(const std::string& message) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const nlohmann::ordered_json error{
      {"message",
       {{"message", message},
        {"extraInfo", {{"py_callstack", ""}, {"timestamp", std::to_string(seconds)}}}}}};
  try {
    write_file(path, error.dump());
  } catch (const Error& failed) {
    std::cerr << "note: " << failed.what() << "\n";
  }
}

Watch::Watch(std::unique_ptr<Store> store, const Place& place, const Options& options)
    : store_(std::move(store)), place_(place), options_(options), last_change_(Clock::now()) {
  store_->set(key("name", place_.rank), concat("machine ", machine(), ", process ", ::getpid()));
  store_->set(key("sign", place_.rank), "0 0");
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Watch::sleep(Seconds time) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, time, [this] { return stopping_; });
}

void Watch::meet() {
  const auto end = Clock::now() + options_.timeout;
  std::vector<int64_t> missing;
  do {
    missing.clear();
    for (int64_t rank = 0; rank < place_.size; ++rank)
      if (!store_->find(key("name", rank))) missing.push_back(rank);
    check();
    if (missing.empty()) return;
    stop_if_interrupted(kBeforeMeeting);
  } while (Clock::now() < end && sleep(Seconds(0.05)));
  const auto stands = note_failure(
      *store_,
      {place_.rank, concat(listed(missing), " of ", place_.size, " did not come within ",
                           options_.timeout.count(), " s to where the ranks meet (", place_.address,
                           ":", place_.port, "); see what became of ",
                           missing.size() == 1 ? "it" : "them", ", or give --rank-timeout more")});
  known_ = true;
  throw as_error(stands);
}

std::optional<Watch::Sign> Watch::sign_of(int64_t rank) {
  const auto text = store_->find(key("sign", rank));
  if (!text) return std::nullopt;
  long long beats = 0, exchanges = 0;
  if (std::sscanf(text->c_str(), "%lld %lld", &beats, &exchanges) != 2) return std::nullopt;
  return Sign{beats, exchanges};
}

std::vector<std::optional<Watch::Sign>> Watch::signs() {
  std::vector<std::optional<Sign>> all;
  for (int64_t rank = 0; rank < place_.size; ++rank) all.push_back(sign_of(rank));
  return all;
}

std::string Watch::name_of(int64_t rank) {
  return concat("rank ", rank, " (", store_->find(key("name", rank)).value_or("unknown"), ")");
}

void Watch::run() {
  Clock::time_point answered = Clock::now();
  while (sleep(kBetweenSigns)) {
    try {
      look();
      answered = Clock::now();
    } catch (const std::exception&) {
      // At the end of the work the host of the store may be the first to leave.
      if (Clock::now() - answered > kObservation && sleep(kObservation))
        end_process(lost_meeting_point());
    }
  }
}

void Watch::look() {
  own_ = {own_.beats + 1, exchanges_};
  store_->set(key("sign", place_.rank), concat(own_.beats, " ", own_.exchanges));
  look_at_next();
  look_at_late_ones();
  const auto failed = noted_failure(*store_);
  if (failed && !known_ && sleep(kGrace) && !known_) end_process(*failed);
}

void Watch::look_at_next() {
  const int64_t next = (place_.rank + 1) % place_.size;
  const Sign sign = sign_of(next).value_or(Sign{});
  if (!(sign == last_)) {
    last_ = sign;
    last_change_ = Clock::now();
  }
  const Seconds most = std::min(kMostSilence, options_.timeout);
  // Nobody has to be there before the ranks have met.
  if (exchanges_ == 0 || Clock::now() - last_change_ < most || has_left(next)) return;
  note_failure(*store_, {place_.rank, concat(name_of(next), " has given no sign of life for ",
                                             most.count(), " s: it is gone, stopped or cut off")});
}

void Watch::count_exchange() {
  exchanges_ += 1;
  last_exchange_ = Clock::now();
}

std::optional<int64_t> Watch::rank_behind() {
  const auto all = signs();
  for (int64_t rank = 0; rank < place_.size; ++rank) {
    const auto& sign = all[static_cast<size_t>(rank)];
    if (rank != place_.rank && sign && sign->exchanges < exchanges_) return rank;
  }
  return std::nullopt;
}

std::string Watch::hang_of(int64_t rank) {
  return concat(name_of(rank), " hangs: for ", options_.timeout.count(),
                " s it has not come to exchange ", exchanges_.load(),
                ", for which the others wait (--rank-timeout)");
}

// NCCL lets a rank wait for ever.
void Watch::look_at_late_ones() {
  if (exchanges_ == 0 || Clock::now() - last_exchange_.load() < options_.timeout + kGrace) return;
  if (const auto rank = rank_behind()) note_failure(*store_, {place_.rank, hang_of(*rank)});
}

bool Watch::has_left(int64_t rank) { return store_->find(key("left", rank)).has_value(); }

// One message is enough for all ranks: that of who found out, and the first rank's.
bool Watch::speaks(const Failure& failure) const {
  return failure.by == place_.rank || place_.rank == 0 || options_.all_speak;
}

Failure Watch::lost_meeting_point() const {
  // Rank 0 was it, or there is nobody to agree with on who speaks.
  return {place_.hosted ? 0 : 1,
          concat("the meeting point of the ranks, ", place_.address, ":", place_.port,
                 place_.hosted ? "" : " in the process of rank 0",
                 ", no longer answers: its process or machine is gone")};
}

void Watch::end_process(const Failure& failure) {
  // The main thread may wait for ever in a call that nothing can end.
  if (speaks(failure))
    std::cerr << "tempera: rank " << place_.rank << ": stopped: " << failure.message << std::endl;
  write_error_file(failure.message);
  std::_Exit(1);
}

RankFailure Watch::as_error(const Failure& failure) const {
  return {concat("stopped: ", failure.message), !speaks(failure)};
}

Failure Watch::find_lost(const std::string& words) {
  // A rank that fails says so first, and only then leaves.
  const auto before = signs();
  for (const auto end = Clock::now() + kObservation; Clock::now() < end && sleep(Seconds(0.1));)
    if (auto failed = noted_failure(*store_)) return *std::move(failed);
  const auto after = signs();
  std::string found = concat("the ranks cannot exchange data: ", words.substr(0, words.find('\n')));
  if (const auto behind = rank_behind()) found = hang_of(*behind);
  for (int64_t rank = place_.size; rank-- > 0;)
    if (rank != place_.rank &&
        before[static_cast<size_t>(rank)] == after[static_cast<size_t>(rank)])
      found = concat(name_of(rank), " is gone or stopped: it gives no more signs of life");
  return note_failure(*store_, {place_.rank, found});
}

RankFailure Watch::explain(const std::string& words) {
  known_ = true;
  try {
    return as_error(find_lost(words));
  } catch (const std::exception&) {
    return as_error(lost_meeting_point());
  }
}

RankFailure Watch::report(const std::string& message) {
  known_ = true;
  try {
    const std::string own = concat(name_of(place_.rank), " failed: ", message);
    const Failure stands = note_failure(*store_, {place_.rank, own});
    const bool said = stands.by != place_.rank && stands.message.ends_with(message);
    return {message, said && !options_.all_speak};
  } catch (const std::exception&) {
    return {message, false};  // the others find out by the missing signs
  }
}

void Watch::check() {
  const auto failed = noted_failure(*store_);
  if (!failed) return;
  known_ = true;
  throw as_error(*failed);
}

void Watch::leave() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  store_->set(key("left", place_.rank), "");
  if (place_.hosted || place_.rank != 0) return;
  // The store ends with this process.
  const auto end = Clock::now() + kGrace;
  const auto all_left = [&] {
    for (int64_t rank = 1; rank < place_.size; ++rank)
      if (!has_left(rank)) return false;
    return true;
  };
  while (!all_left() && Clock::now() < end) std::this_thread::sleep_for(Seconds(0.01));
}

}  // namespace tempera::dist
