#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tempera/dist/c10d.h"
#include "tempera/dist/environment.h"
#include "tempera/dist/options.h"
#include "tempera/dist/watch.h"

namespace tempera::dist {

// How ranks on such a device talk; throws UsageError where the choice does not suit it.
Group::Kind group_kind(BackendChoice choice, c10::DeviceType device);

// The processes that work on one job, the ranks. A world of one has no connections, and its
// operations do nothing.
//
// All ranks make the same calls in the same order. A call throws RankFailure, which names the rank,
// where another one is gone, hangs for longer than the timeout, or has failed.
class World {
 public:
  World();
  // Meets the other ranks; throws Error where they, or the meeting point, do not answer in time.
  World(const Place& place, const Options& options, c10::DeviceType device);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  bool alone() const { return place_.size == 1; }
  bool is_first() const { return place_.rank == 0; }
  // Where this rank says something to a person: it is the first, or all were asked to.
  bool speaks() const { return is_first() || all_speak_; }

  // An operation under way, which has to be waited for.
  class Work {
   public:
    Work() = default;
    Work(World& world, std::unique_ptr<Pending> pending)
        : world_(&world), pending_(std::move(pending)) {}
    void wait();

   private:
    World* world_ = nullptr;
    std::unique_ptr<Pending> pending_;
  };

  // Tensors are contiguous. Those named `flat` have one dimension and an equal part for each rank.
  Work start_sum(const at::Tensor& tensor);
  // Afterwards the part of this rank is the sum over all; the others are undefined.
  Work start_sum_parts(const at::Tensor& flat);
  // Each rank's part comes to all.
  Work start_gather_parts(const at::Tensor& flat);
  void sum(const at::Tensor& tensor) { start_sum(tensor).wait(); }
  void broadcast(const at::Tensor& tensor, int64_t from = 0);
  // Of a tensor with a part for each rank.
  at::Tensor part(const at::Tensor& flat) const;

  // The sums over all ranks, in double precision.
  std::vector<double> sums(std::vector<double> values);
  // A signal to one rank, 0 where it has none, is one to all; of two, the order to end counts.
  int any_signal(int own);
  // The texts of all ranks, in their order.
  std::vector<std::string> exchange(const std::string& text);
  // That of the first rank.
  std::string from_first(const std::string& text);
  void barrier() { sums({0}); }
  // The first rank works, however long it takes, and the others wait until it is done. A signal to
  // any of them interrupts all.
  void first(const std::function<void()>& work);
  // Waits until all ranks are here, however long one takes that lives: before an exchange where
  // they have read or written files.
  void await_all();

  // Runs the job of this rank. Where it fails the other ranks learn why, and stop.
  void run(const std::function<void()>& job);

  // Ranks on this machine, and this one's share of the cores.
  int64_t local_size() const { return place_.local_size; }
  int64_t cores() const;

 private:
  friend class Team;
  friend class SharedJobs;
  struct Connection;
  // Opens a group of some of the ranks, this one among them, which meet under the name.
  std::unique_ptr<Group> open_group(const std::string& name, const Group::Rank& rank);
  // Runs it; the other ranks learn why it failed.
  void tell_others(const std::function<void()>& work);
  Work start(const std::function<std::unique_ptr<Pending>(Group&)>& operation);
  Work start_in(Group& group, const std::function<std::unique_ptr<Pending>(Group&)>& operation);
  // As long as no rank fails.
  void wait_until(const std::function<bool()>& there);
  at::Tensor to_device(const at::Tensor& tensor) const;

  Place place_;
  bool all_speak_ = false;
  c10::DeviceType device_ = c10::kCPU;
  int64_t waits_ = 0;  // that all ranks came to together
  std::unique_ptr<Connection> connection_;
};

// Neighbours in a world that exchange among themselves: the world is cut into teams of one size,
// which divides its own. All ranks of the world make their teams together.
class Team {
 public:
  Team(World& world, int64_t size);

  // Among the teams, and in its own.
  int64_t number() const { return world_.rank() / size_; }
  int64_t rank() const { return world_.rank() % size_; }
  int64_t size() const { return size_; }
  // As those of the world.
  void sum_parts(const at::Tensor& flat) const;
  void gather_parts(const at::Tensor& flat) const;

 private:
  World& world_;
  int64_t size_;
  std::unique_ptr<Group> group_;
};

// Jobs that the ranks of a world do side by side: each takes one when it is free, and every job is
// done once. All ranks make it together, and stay until all have ended.
class SharedJobs {
 public:
  explicit SharedJobs(World& world);

  // Whether this rank gets the job of that name, for which each rank asks once; for any thread.
  bool claim(const std::string& name);
  // One that it got is done, and its result is there.
  void finish();
  // Jobs that some rank got and has not finished. Throws RankFailure where one has failed.
  int64_t under_way();
  // How far this rank is, in words of its own; and what each said last.
  void say(const std::string& text);
  std::vector<std::string> said();
  // Ends the work of all ranks where this one has got a signal. Gives the signal that did; 0: none.
  int stop(int signal);
  // This rank asks for no more.
  void end();
  // Whether no rank works any more. Throws RankFailure where one has failed.
  bool all_ended();

 private:
  // The store may be gone: then who is lost.
  template <class Ask>
  auto ask(const Ask& question);

  World& world_;
  std::unique_ptr<Store> store_;        // none where the rank is alone
  std::atomic<int64_t> under_way_ = 0;  // where the rank is alone
  std::string said_;
  int signal_ = 0;
  bool ended_ = false;
};

// What this process computes on GPUs is computed on that of its place among the ranks of the
// machine.
void use_local_gpu(const Place& place);

// A property of the job that all ranks must share, as "data" or "settings"; key and value.
using Properties = std::vector<std::pair<std::string, std::string>>;
// The program, and settings that it was given; not on which device it computes.
Properties properties_of(const config::Options& settings);
// Throws Error that names the rank and the property where one differs from the first rank's.
void check_agreement(World& world, const Properties& own);

}  // namespace tempera::dist
