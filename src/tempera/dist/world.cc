#include "tempera/dist/world.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
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

// Two ranks on one GPU work, slowly, through Gloo alone.
void check_gpus(const Place& place, Group::Kind kind) {
  const auto there = static_cast<int64_t>(torch::cuda::device_count());
  if (kind == Group::Kind::kNccl && place.local_size > there)
    throw UsageError(concat(place.local_size, " ranks on a machine with ", there,
                            there == 1 ? " GPU" : " GPUs", "; expected at most ", there,
                            ", or --device cpu, or --backend gloo for several ranks on one GPU"));
}

std::unique_ptr<Store> open_store(const Place& place, bool host, Seconds timeout) {
  try {
    return std::make_unique<Store>(
        Store::Meeting{.address = place.address,
                       .port = static_cast<uint16_t>(place.port),
                       .host = host,
                       .prefix = concat("tempera/attempt_", place.restarts)},
        timeout);
  } catch (const std::exception& error) {
    const std::string words = error.what();
    const std::string where = concat(place.address, ":", place.port);
    if (host)
      throw Error(concat("rank 0 cannot open the meeting point of the ranks at ", where, ": ",
                         words.substr(0, words.find('\n')), "; is MASTER_PORT taken?"));
    throw Error(concat("rank ", place.rank, ": the meeting point of the ranks at ", where,
                       " did not answer within ", timeout.count(),
                       " s; is rank 0 running, are MASTER_ADDR and MASTER_PORT right, and does a "
                       "firewall let them through?"));
  }
}

}  // namespace

struct World::Connection {
  std::unique_ptr<Store> store;
  Watch watch;
  std::optional<Group> group;
};

World::World() = default;

World::World(const Place& place, const Options& options, c10::DeviceType device)
    : place_(place), all_speak_(options.log_ranks), device_(device) {
  if (alone()) return;
  const Seconds timeout(options.timeout);
  // Two connections: in one of them the watch must not wait behind anything.
  auto store = open_store(place, !place.hosted && is_first(), timeout);
  auto watched = open_store(place, false, timeout);
  connection_.reset(new Connection{
      std::move(store),
      Watch(std::move(watched), place, {.timeout = timeout, .all_speak = all_speak_}),
      std::nullopt});
  connection_->watch.meet();
  tell_others([&] {
    const Group::Kind kind = group_kind(options.backend, device);
    if (device == c10::kCUDA) check_gpus(place, kind);
    try {
      connection_->group.emplace(kind, *connection_->store,
                                 Group::Rank{.rank = place.rank,
                                             .size = place.size,
                                             .one_machine = place.local_size == place.size},
                                 timeout);
    } catch (const std::exception& error) {
      throw connection_->watch.explain(error.what());
    }
    barrier();
  });
}

World::~World() = default;

World::Work World::start(const std::function<std::unique_ptr<Pending>(Group&)>& operation) {
  if (alone()) return {};
  connection_->watch.count_exchange();
  try {
    return {*this, operation(*connection_->group)};
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

void World::first(const std::function<void()>& work) {
  if (is_first()) work();
  if (alone()) return;
  // By a key in the store: an exchange would have to end within the timeout.
  const std::string key = concat("first/", firsts_++);
  if (is_first()) return connection_->store->set(key, "");
  try {
    while (!connection_->store->find(key)) {
      connection_->watch.check();
      if (connection_->watch.has_left(0))
        throw Interrupted(SIGTERM, "the first rank was interrupted while it prepared the data");
      stop_if_interrupted("interrupted while the first rank was preparing the data");
      std::this_thread::sleep_for(Seconds(0.02));
    }
  } catch (const c10::Error& error) {
    throw connection_->watch.explain(error.what());
  }
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

void use_local_gpu(const Place& place) {
  const auto there = static_cast<int64_t>(torch::cuda::device_count());
  if (there == 0) return;
  const c10::impl::VirtualGuardImpl gpus(c10::kCUDA);
  gpus.setDevice({c10::kCUDA, static_cast<c10::DeviceIndex>(place.local_rank % there)});
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
