#pragma once

#include <barrier>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "tempera/nn/context.h"
#include "tempera/ops/torch.h"

// Ranks that share sequences, as threads of one process.
namespace tempera::nn {

class ThreadExchange final : public RankExchange {
 public:
  // What the threads have in common.
  struct Meeting {
    explicit Meeting(int64_t ranks) : barrier(ranks), flats(static_cast<size_t>(ranks)) {}
    std::barrier<> barrier;
    std::vector<torch::Tensor> flats;
  };
  ThreadExchange(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(meeting_.flats.size()); }
  int64_t gathers() const { return gathers_; }
  void gather_parts(const torch::Tensor& flat) const override {
    gathers_ += 1;
    const auto all = show(flat);
    for (int64_t other = 0; other < size(); ++other)
      if (other != rank_) part(flat, other).copy_(part(all[static_cast<size_t>(other)], other));
    meeting_.barrier.arrive_and_wait();
  }
  void sum_parts(const torch::Tensor& flat) const override {
    const auto all = show(flat);
    auto sum = torch::zeros_like(part(flat, rank_));
    for (const auto& other : all) sum.add_(part(other, rank_));
    meeting_.barrier.arrive_and_wait();
    flat.fill_(std::numeric_limits<float>::quiet_NaN());
    part(flat, rank_).copy_(sum);
  }

 private:
  std::vector<torch::Tensor> show(const torch::Tensor& flat) const {
    meeting_.flats[static_cast<size_t>(rank_)] = flat;
    meeting_.barrier.arrive_and_wait();
    return meeting_.flats;
  }
  torch::Tensor part(const torch::Tensor& flat, int64_t rank) const {
    const int64_t length = flat.size(0) / size();
    return flat.narrow(0, rank * length, length);
  }

  Meeting& meeting_;
  int64_t rank_;
  mutable int64_t gathers_ = 0;
};

// Every rank runs the job. What it throws must be thrown by all.
inline void run_context_ranks(
    int64_t ranks,
    const std::function<void(const ContextShare& share, const ThreadExchange& exchange)>& job) {
  ThreadExchange::Meeting meeting(ranks);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const ThreadExchange exchange(meeting, rank);
      const ContextShare share(exchange);
      job(share, exchange);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace tempera::nn
