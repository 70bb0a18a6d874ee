#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

// torch's distributed engine behind types of our own: c10d is not a stable interface, and c10d.cc
// is the only file that includes it. Everything here throws std::exception where a peer is gone or
// time is up.
namespace tempera::dist {

using Seconds = std::chrono::duration<double>;

// Texts under keys, which all ranks see.
class Store {
 public:
  struct Meeting {
    std::string address;
    uint16_t port = 0;  // 0, of a host: any that is free
    bool host = false;
    std::string prefix = {};  // of the keys
  };
  // Connects, for so long at most.
  Store(const Meeting& meeting, Seconds timeout);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  uint16_t port() const;
  // Of what waits in it from now on.
  void set_timeout(Seconds timeout);
  void set(const std::string& key, const std::string& text);
  std::optional<std::string> find(const std::string& key);
  // The text, unless there is one already; gives what stands there then.
  std::string set_first(const std::string& key, const std::string& text);
  int64_t add(const std::string& key, int64_t number);
  // The same connection, with keys of its own.
  std::unique_ptr<Store> under(const std::string& prefix) const;

 private:
  friend class Group;
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// An operation under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Until the result is there; on a GPU, until the current stream may read it.
  virtual void wait() = 0;
};

// The ranks as a group that computes together. Every rank makes the same calls in the same order.
// Tensors are contiguous; `flat` has one equal part for each rank.
class Group {
 public:
  enum class Kind { kGloo, kNccl };
  struct Rank {
    int64_t rank = 0, size = 1;
    bool one_machine = false;
  };
  Group(Kind kind, Store& store, const Rank& rank, Seconds timeout);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  static bool has_nccl();

  std::unique_ptr<Pending> sum(at::Tensor tensor);
  // Afterwards the part of this rank is the sum; the others are undefined.
  std::unique_ptr<Pending> sum_parts(at::Tensor flat);
  // Each rank's part comes to all.
  std::unique_ptr<Pending> gather_parts(at::Tensor flat);
  std::unique_ptr<Pending> broadcast(at::Tensor tensor, int64_t from);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tempera::dist
