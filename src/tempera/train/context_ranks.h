#pragma once

#include <cstdint>

#include "tempera/dist/world.h"
#include "tempera/nn/context.h"
#include "tempera/nn/model.h"

namespace tempera::train {

// Teams of ranks that have the same rows of a step, and each some of their tokens: this rank's, for
// the model that it trains.
class ContextRanks final : public nn::RankExchange {
 public:
  // Neither the world nor the model, which computes this rank's tokens meanwhile, may go before it.
  ContextRanks(dist::World& world, nn::Model& model, int64_t ranks);
  ~ContextRanks() override { model_.set_context_share(nullptr); }
  ContextRanks(const ContextRanks&) = delete;
  ContextRanks& operator=(const ContextRanks&) = delete;

  const nn::ContextShare& share() const { return share_; }
  int64_t rank() const override { return team_.rank(); }
  int64_t size() const override { return team_.size(); }
  void gather_parts(const torch::Tensor& flat) const override { team_.gather_parts(flat); }
  void sum_parts(const torch::Tensor& flat) const override { team_.sum_parts(flat); }

 private:
  nn::Model& model_;
  dist::Team team_;
  nn::ContextShare share_;
};

}  // namespace tempera::train
