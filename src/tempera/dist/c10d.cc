#include "tempera/dist/c10d.h"

#include <c10/util/Flags.h>
#include <netinet/in.h>
#include <resolv.h>

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/dist/environment.h"
#include "tempera/ops/torch.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef TEMPERA_WITH_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

C10_DECLARE_int(caffe2_log_level);

namespace tempera::dist {
namespace {

std::chrono::milliseconds milliseconds(Seconds seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(seconds);
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

class Running final : public Pending {
 public:
  Running(c10::intrusive_ptr<c10d::Work> work, at::Tensor tensor)
      : work_(std::move(work)), tensor_(std::move(tensor)) {}
  void wait() override { work_->wait(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor tensor_;  // stays until then
};

class Several final : public Pending {
 public:
  void add(std::unique_ptr<Pending> one) { all_.push_back(std::move(one)); }
  void wait() override {
    for (const auto& one : all_) one->wait();
  }

 private:
  std::vector<std::unique_ptr<Pending>> all_;
};

at::Tensor part_of(const at::Tensor& flat, int rank, int size) {
  return flat.narrow(0, rank * (flat.size(0) / size), flat.size(0) / size);
}

// torch asks a name server for the name of every address that it connects to. One that does not
// answer takes 10 seconds; here none is asked by this thread, and torch gives up asking.
class NoNameServers {
 public:
  NoNameServers() : known_(::res_init() == 0) {
    if (known_) std::swap(servers_, _res.nscount);
  }
  ~NoNameServers() {
    if (known_) std::swap(servers_, _res.nscount);
  }
  NoNameServers(const NoNameServers&) = delete;
  NoNameServers& operator=(const NoNameServers&) = delete;

 private:
  bool known_;
  int servers_ = 0;
};

// On one machine the loopback is there whatever its name resolves to. Over several,
// GLOO_SOCKET_IFNAME names the network as it does in PyTorch.
std::vector<std::shared_ptr<gloo::transport::Device>> gloo_devices(bool one_machine) {
  using c10d::ProcessGroupGloo;
  if (one_machine) return {ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  if (!given || !*given) return {ProcessGroupGloo::createDefaultDevice()};
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  const std::string names = given;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    devices.push_back(ProcessGroupGloo::createDeviceForInterface(names.substr(begin, end - begin)));
    begin = end + 1;
  }
  return devices;
}

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Group::Rank& rank, Seconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout));
  options->devices = gloo_devices(rank.one_machine);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank.rank),
                                                     static_cast<int>(rank.size), options);
}

c10::intrusive_ptr<c10d::Backend> nccl_backend(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store,
    [[maybe_unused]] const Group::Rank& rank, [[maybe_unused]] Seconds timeout) {
#ifdef TEMPERA_WITH_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // Its own watch ends the process without a word for a person: ours comes first.
  options->timeout = milliseconds(timeout + Seconds(60));
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank.rank),
                                                     static_cast<int>(rank.size), options);
#else
  throw Error(
      "this program was built without NCCL; give --backend gloo, or build it against a "
      "CUDA wheel of torch");
#endif
}

}  // namespace

struct Store::State {
  c10::intrusive_ptr<c10d::TCPStore> tcp;
  c10::intrusive_ptr<c10d::Store> store;
};

Store::Store(const Meeting& meeting, Seconds timeout) {
  // torch's log would tell of every attempt; what matters comes as an exception.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 3;
  c10d::TCPStoreOptions options;
  options.port = meeting.port;
  options.isServer = meeting.host;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout);
  std::optional<NoNameServers> here;
  if (is_loopback(meeting.address)) here.emplace();
  auto tcp = c10::make_intrusive<c10d::TCPStore>(meeting.address, options);
  state_ = std::make_unique<State>(
      State{tcp, c10::make_intrusive<c10d::PrefixStore>(meeting.prefix, tcp)});
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}

Store::~Store() = default;

std::unique_ptr<Store> Store::under(const std::string& prefix) const {
  return std::unique_ptr<Store>(new Store(std::make_unique<State>(
      State{state_->tcp, c10::make_intrusive<c10d::PrefixStore>(prefix, state_->store)})));
}

uint16_t Store::port() const { return state_->tcp->getPort(); }

void Store::set_timeout(Seconds timeout) { state_->tcp->setTimeout(milliseconds(timeout)); }

void Store::set(const std::string& key, const std::string& text) {
  state_->store->set(key, bytes_of(text));
}

std::optional<std::string> Store::find(const std::string& key) {
  if (!state_->store->check({key})) return std::nullopt;
  return text_of(state_->store->get(key));
}

std::string Store::set_first(const std::string& key, const std::string& text) {
  return text_of(state_->store->compareSet(key, {}, bytes_of(text)));
}

int64_t Store::add(const std::string& key, int64_t number) {
  return state_->store->add(key, number);
}

struct Group::State {
  c10::intrusive_ptr<c10d::Backend> backend;
  Kind kind;
};

Group::Group(Kind kind, Store& store, const Rank& rank, Seconds timeout) {
  const auto& shared = store.state_->store;
  state_ = std::make_unique<State>(State{kind == Kind::kNccl ? nccl_backend(shared, rank, timeout)
                                                             : gloo_backend(shared, rank, timeout),
                                         kind});
}

Group::~Group() = default;

bool Group::has_nccl() {
#ifdef TEMPERA_WITH_NCCL
  return true;
#else
  return false;
#endif
}

std::unique_ptr<Pending> Group::sum(at::Tensor tensor) {
  std::vector<at::Tensor> list = {tensor};
  return std::make_unique<Running>(state_->backend->allreduce(list), std::move(tensor));
}

std::unique_ptr<Pending> Group::sum_parts(at::Tensor flat) {
  // Gloo reduces a copy of everything and takes the part out of it.
  if (state_->kind == Kind::kGloo) return sum(std::move(flat));
  at::Tensor part = part_of(flat, state_->backend->getRank(), state_->backend->getSize());
  return std::make_unique<Running>(state_->backend->_reduce_scatter_base(part, flat), flat);
}

std::unique_ptr<Pending> Group::gather_parts(at::Tensor flat) {
  if (state_->kind == Kind::kGloo) {
    // Gloo gathers into a copy of everything; parts that each rank sends need none.
    auto parts = std::make_unique<Several>();
    for (int rank = 0; rank < state_->backend->getSize(); ++rank)
      parts->add(broadcast(part_of(flat, rank, state_->backend->getSize()), rank));
    return parts;
  }
  at::Tensor part = part_of(flat, state_->backend->getRank(), state_->backend->getSize());
  return std::make_unique<Running>(state_->backend->_allgather_base(flat, part), flat);
}

std::unique_ptr<Pending> Group::broadcast(at::Tensor tensor, int64_t from) {
  std::vector<at::Tensor> list = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = from;
  return std::make_unique<Running>(state_->backend->broadcast(list, options), std::move(tensor));
}

}  // namespace tempera::dist
