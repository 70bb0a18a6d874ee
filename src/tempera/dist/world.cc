#include "tempera/dist/world.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "tempera/base/build_id.h"
#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/version.h"
#include "tempera/ops/torch.h"

namespace tempera::dist {

Group::Kind group_kind(BackendChoice choice, c10::DeviceType device) {
  if (choice == BackendChoice::kNccl) {
    if (device != c10::kCUDA)
      throw UsageError("--backend nccl given, and the ranks compute on CPUs; NCCL needs GPUs");
    return Group::Kind::kNccl;
  }
  const bool nccl = choice == BackendChoice::kAuto && device == c10::kCUDA && Group::has_nccl();
  return nccl ? Group::Kind::kNccl : Group::Kind::kGloo;
}

namespace {

using Clock = std::chrono::steady_clock;

// Two ranks on one GPU work, slowly, through Gloo alone.
void check_gpus(const Place& place, Group::Kind kind) {
  const auto there = static_cast<int64_t>(torch::cuda::device_count());
  if (kind == Group::Kind::kNccl && place.local_size > there)
    throw UsageError(concat(place.local_size, " ranks on a machine with ", there,
                            there == 1 ? " GPU" : " GPUs", "; expected at most ", there,
                            ", or --device cpu, or --backend gloo for several ranks on one GPU"));
}

constexpr Seconds kShortestTry{1};

Store::Meeting meeting_of(const Place& place, bool host) {
  return {.address = place.address,
          .port = static_cast<uint16_t>(place.port),
          .host = host,
          .prefix = kMeetingPrefix};
}

Error no_answer(const Place& place, Seconds timeout) {
  return Error(concat("the meeting point of the ranks at ", place.address, ":", place.port,
                      " did not answer within ", timeout.count(),
                      " s; is rank 0 running, are MASTER_ADDR and MASTER_PORT right, and does a "
                      "firewall let them through?"));
}

std::unique_ptr<Store> host_store(const Place& place, Seconds timeout) {
  try {
    return std::make_unique<Store>(meeting_of(place, /*host=*/true), timeout);
  } catch (const std::exception& error) {
    const std::string words = error.what();
    throw Error(concat("the meeting point of the ranks cannot be opened at ", place.address, ":",
                       place.port, ": ", words.substr(0, words.find('\n')),
                       "; is MASTER_PORT taken?"));
  }
}

std::unique_ptr<Store> find_store(const Place& place, Seconds timeout) {
  const auto start = Clock::now();
  // Nothing interrupts a try. They grow, as a busy meeting point takes its time.
  for (Seconds passed{0}; passed < timeout; passed = Clock::now() - start) {
    try {
      auto store =
          std::make_unique<Store>(meeting_of(place, /*host=*/false),
                                  std::min(std::max(passed, kShortestTry), timeout - passed));
      store->set_timeout(timeout);
      return store;
    } catch (const std::exception&) {
      stop_if_interrupted(kBeforeMeeting);
      std::this_thread::sleep_for(Seconds(0.1));
    }
  }
  throw no_answer(place, timeout);
}

}  // namespace

struct World::Connection {
  std::unique_ptr<Store> store;
  Watch watch;
  Group::Kind kind;
  Seconds timeout;
  std::unique_ptr<Group> group;
};

World::World() = default;

World::World(const Place& place, const Options& options, c10::DeviceType device)
    : place_(place), all_speak_(options.log_ranks), device_(device) {
  if (alone()) return;
  const Seconds timeout(options.timeout);
  // Two connections: in one of them the watch must not wait behind anything.
  const bool host = !place.hosted && is_first();
  const auto store = host ? host_store(place, timeout) : find_store(place, timeout);
  const auto watched = find_store(place, timeout);
  const std::string attempt =
      attempt_name(place.elastic ? join_attempt(*store, place, timeout) : 0);
  connection_.reset(new Connection{
      store->under(attempt),
      Watch(watched->under(attempt), place, {.timeout = timeout, .all_speak = all_speak_}),
      Group::Kind::kGloo, timeout, nullptr});
  tell_others([&] {
    connection_->watch.meet();
    connection_->kind = group_kind(options.backend, device);
    if (device == c10::kCUDA) check_gpus(place, connection_->kind);
    connection_->group = open_group("world", {.rank = place.rank, .size = place.size});
    barrier();
  });
}

std::unique_ptr<Group> World::open_group(const std::string& name, const Group::Rank& rank) {
  Group::Rank placed = rank;
  placed.one_machine = place_.local_size == place_.size;
  try {
    const auto store = connection_->store->under(name);
    return std::make_unique<Group>(connection_->kind, *store, placed, connection_->timeout);
  } catch (const std::exception& error) {
    throw connection_->watch.explain(error.what());
  }
}

World::~World() = default;

World::Work World::start(const std::function<std::unique_ptr<Pending>(Group&)>& operation) {
  if (alone()) return {};
  return start_in(*connection_->group, operation);
}

World::Work World::start_in(Group& group,
                            const std::function<std::unique_ptr<Pending>(Group&)>& operation) {
  connection_->watch.count_exchange();
  try {
    return {*this, operation(group)};
  } catch (const std::exception& error) {
    throw connection_->watch.explain(error.what());
  }
}

void World::Work::wait() {
  if (!pending_) return;
  try {
    std::exchange(pending_, nullptr)->wait();
  } catch (const std::exception& error) {
    throw world_->connection_->watch.explain(error.what());
  }
}

World::Work World::start_sum(const at::Tensor& tensor) {
  return start([&](Group& group) { return group.sum(tensor); });
}

World::Work World::start_sum_parts(const at::Tensor& flat) {
  return start([&](Group& group) { return group.sum_parts(flat); });
}

World::Work World::start_gather_parts(const at::Tensor& flat) {
  return start([&](Group& group) { return group.gather_parts(flat); });
}

void World::broadcast(const at::Tensor& tensor, int64_t from) {
  start([&](Group& group) { return group.broadcast(tensor, from); }).wait();
}

at::Tensor World::part(const at::Tensor& flat) const {
  const int64_t length = flat.size(0) / size();
  return flat.narrow(0, rank() * length, length);
}

at::Tensor World::to_device(const at::Tensor& tensor) const { return tensor.to(device_); }

std::vector<double> World::sums(std::vector<double> values) {
  if (alone()) return values;
  const at::Tensor own = at::from_blob(values.data(), {static_cast<int64_t>(values.size())},
                                       at::TensorOptions().dtype(at::kDouble));
  const at::Tensor all = to_device(own);
  sum(all);
  own.copy_(all);
  return values;
}

int World::any_signal(int own) {
  if (alone()) return own;
  const auto got = sums({own == SIGTERM ? 1.0 : 0.0, own != 0 ? 1.0 : 0.0});
  return got[0] > 0 ? SIGTERM : got[1] > 0 ? SIGINT : 0;
}

std::vector<std::string> World::exchange(const std::string& text) {
  if (alone()) return {text};
  const auto places = static_cast<size_t>(size());
  std::vector<double> lengths(places);
  lengths[static_cast<size_t>(rank())] = static_cast<double>(text.size());
  lengths = sums(std::move(lengths));
  int64_t longest = 1;
  for (const double length : lengths) longest = std::max(longest, static_cast<int64_t>(length));
  at::Tensor bytes = at::zeros({size() * longest}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.mutable_data_ptr<uint8_t>() + rank() * longest, text.data(), text.size());
  bytes = to_device(bytes);
  start_gather_parts(bytes).wait();
  bytes = bytes.to(at::kCPU);
  std::vector<std::string> texts;
  for (size_t i = 0; i < places; ++i)
    texts.emplace_back(reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()) +
                           static_cast<int64_t>(i) * longest,
                       static_cast<size_t>(lengths[i]));
  return texts;
}

std::string World::from_first(const std::string& text) {
  return exchange(is_first() ? text : "").front();
}

void World::wait_until(const std::function<bool()>& there) {
  const auto start = Clock::now();
  try {
    while (!there()) {
      connection_->watch.check();
      // Soon again at first; seldom where it takes long, as every rank asks the one store.
      const Seconds passed = Clock::now() - start;
      std::this_thread::sleep_for(std::clamp(passed / 10, Seconds(0.001), Seconds(0.5)));
    }
  } catch (const c10::Error& error) {
    throw connection_->watch.explain(error.what());
  }
}

void World::first(const std::function<void()>& work) {
  if (alone()) return work();
  Store& store = *connection_->store;
  const std::string key = concat("first/", waits_++);
  // The first word stands for all: 0, the work is done, or the signal that came before.
  std::optional<std::string> outcome;
  const auto settle = [&](int signal) { outcome = store.set_first(key, std::to_string(signal)); };
  if (is_first()) {
    try {
      work();
    } catch (const Interrupted& error) {
      settle(error.signal());
      throw;
    }
    settle(0);
  } else {
    wait_until([&] {
      outcome = store.find(key);
      if (const int signal = InterruptGuard::signal(); !outcome && signal != 0) settle(signal);
      return outcome.has_value();
    });
  }
  if (const int signal = std::stoi(*outcome); signal != 0)
    throw Interrupted(signal, "interrupted while the first rank was preparing the data");
}

void World::await_all() {
  if (alone()) return;
  Store& store = *connection_->store;
  const std::string key = concat("all/", waits_++);
  bool here = false;
  wait_until([&] { return store.add(key, std::exchange(here, true) ? 0 : 1) >= size(); });
}

void World::tell_others(const std::function<void()>& work) {
  try {
    work();
  } catch (const RankFailure&) {
    throw;
  } catch (const Interrupted& error) {
    connection_->watch.leave();
    if (speaks()) throw;
    throw Interrupted(error.signal(), "");
  } catch (const std::exception& error) {
    if (const RankFailure failure = connection_->watch.report(error.what()); failure.silent())
      throw failure;
    throw;
  }
}

void World::run(const std::function<void()>& job) {
  if (alone()) return job();
  tell_others([&] {
    job();
    barrier();
  });
  connection_->watch.leave();
}

int64_t World::cores() const {
  const int64_t all = std::thread::hardware_concurrency();
  return std::max<int64_t>(1, all / place_.local_size);
}

constexpr const char* kUnderWay = "under_way";

SharedJobs::SharedJobs(World& world) : world_(world) {
  if (world.alone()) return;
  // All waits are counted alike in all ranks, and so every work has keys of its own.
  store_ = world.connection_->store->under(concat("jobs/", world.waits_));
  world.await_all();
}

template <class Ask>
auto SharedJobs::ask(const Ask& question) {
  try {
    return question();
  } catch (const c10::Error& error) {
    throw world_.connection_->watch.explain(error.what());
  }
}

bool SharedJobs::claim(const std::string& name) {
  if (!store_) return ++under_way_ > 0;
  return ask([&] {
    // Before it has the job: it may not look as if nobody had it.
    store_->add(kUnderWay, 1);
    if (store_->add("claims/" + name, 1) == 1) return true;
    store_->add(kUnderWay, -1);
    return false;
  });
}

void SharedJobs::finish() {
  if (!store_)
    --under_way_;
  else
    ask([&] { store_->add(kUnderWay, -1); });
}

int64_t SharedJobs::under_way() {
  if (!store_) return under_way_;
  return ask([&] {
    world_.connection_->watch.check();
    return store_->add(kUnderWay, 0);
  });
}

void SharedJobs::say(const std::string& text) {
  said_ = text;
  if (store_) ask([&] { store_->set(concat("said/", world_.rank()), text); });
}

std::vector<std::string> SharedJobs::said() {
  if (!store_) return {said_};
  std::vector<std::string> all;
  ask([&] {
    for (int64_t rank = 0; rank < world_.size(); ++rank)
      all.push_back(rank == world_.rank() ? said_
                                          : store_->find(concat("said/", rank)).value_or(""));
  });
  return all;
}

// The first word stands for all ranks: a signal, or 0 as all have ended.
constexpr const char* kOutcome = "outcome";

int SharedJobs::stop(int signal) {
  if (!store_) return ended_ ? signal_ : signal_ = signal;
  return ask([&] {
    if (signal != 0) return std::stoi(store_->set_first(kOutcome, std::to_string(signal)));
    return std::stoi(store_->find(kOutcome).value_or("0"));
  });
}

void SharedJobs::end() {
  ended_ = true;
  if (store_) ask([&] { store_->add("ended", 1); });
}

bool SharedJobs::all_ended() {
  if (!store_) return ended_;
  ask([&] { world_.connection_->watch.check(); });
  if (!ended_ || ask([&] { return store_->add("ended", 0); }) < world_.size()) return false;
  ask([&] { store_->set_first(kOutcome, "0"); });
  return true;
}

void use_local_gpu(const Place& place) {
  const auto there = static_cast<int64_t>(torch::cuda::device_count());
  if (there == 0) return;
  const c10::impl::VirtualGuardImpl gpus(c10::kCUDA);
  gpus.setDevice({c10::kCUDA, static_cast<c10::DeviceIndex>(place.local_rank % there)});
}

Team::Team(World& world, int64_t size) : world_(world), size_(size) {
  TEMPERA_CHECK(size >= 1 && world.size() % size == 0, "teams of ", size, " ranks given, and ",
                world.size(), " ranks; expected a number that divides them");
  if (size == 1) return;
  // Those of an earlier team would be met where it met.
  group_ = world.open_group(concat("team_", world.waits_++, "_", number()),
                            {.rank = rank(), .size = size});
}

void Team::sum_parts(const at::Tensor& flat) const {
  if (!group_) return;
  world_.start_in(*group_, [&](Group& group) { return group.sum_parts(flat); }).wait();
}

void Team::gather_parts(const at::Tensor& flat) const {
  if (!group_) return;
  world_.start_in(*group_, [&](Group& group) { return group.gather_parts(flat); }).wait();
}

Properties properties_of(const config::Options& settings) {
  Properties list = {{"version", concat(version(), " (build ", build_id(), ")")},
                     {"torch", TORCH_VERSION}};
  for (const auto& entry : settings.entries())
    if (entry.name() != "device")
      list.emplace_back("the setting " + entry.name(), config::toml_text(entry.value));
  return list;
}

void check_agreement(World& world, const Properties& own) {
  if (world.alone()) return;
  const auto all = world.exchange(nlohmann::json(own).dump());
  const auto first = nlohmann::json::parse(all[0]).get<Properties>();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = nlohmann::json::parse(all[rank]).get<Properties>();
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const auto text = [i](const Properties& list) {
        return i < list.size() ? concat(list[i].first, " ", list[i].second) : "nothing";
      };
      TEMPERA_CHECK(text(first) == text(other), "the ranks do not do the same: rank 0 has ",
                    text(first), ", and rank ", rank, " has ", text(other),
                    "; start all of them with the same program, command and data");
    }
  }
}

}  // namespace tempera::dist
