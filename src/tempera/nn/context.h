#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tempera/temperature/row_share.h"

// Context parallel: ranks that have the same sequences, and each some of their rows. A rank
// computes what belongs to its rows; attention reads the keys and values of all.
namespace tempera::nn {

struct Batch;
struct ModelConfig;

// What the ranks send each other. All of them make the same calls in the same order, in the
// backward pass, too.
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // flat has one equal part for each rank: each rank's comes to all.
  virtual void gather_parts(const torch::Tensor& flat) const = 0;
  // Afterwards the part of this rank is the sum over all; the others are undefined.
  virtual void sum_parts(const torch::Tensor& flat) const = 0;
};

// Of N ranks, rank i has the pieces i and 2N - 1 - i of the 2N that every sequence is cut into: a
// causal row costs as much as there are rows before it, and so all ranks compute equally much.
class ContextShare final : public RowShare {
 public:
  // The exchange must outlive it.
  explicit ContextShare(const RankExchange& exchange) : exchange_(exchange) {}

  int64_t ranks() const { return exchange_.size(); }
  torch::Tensor own(const torch::Tensor& all) const override { return own_of(all, 1); }
  torch::Tensor whole(const torch::Tensor& own) const override;

  // The rows of all ranks, for a layer's pass and once more for its way back.
  struct Lent {
    std::vector<torch::Tensor> own;    // (B, heads, rows, ...)
    std::vector<torch::Tensor> whole;  // (B, heads, T, ...)
  };
  Lent lend(std::vector<torch::Tensor> own) const;
  // `out` has been computed from them: their memory is given back until its gradient comes.
  void take_back(const Lent& lent, const torch::Tensor& out) const;

 private:
  struct Gather;

  torch::Tensor own_of(const torch::Tensor& all, int64_t dimension) const;
  // Calls visit(rank, piece of that rank's rows, piece of all rows).
  template <class Visit>
  void for_pieces(Visit&& visit) const;
  void gather(const torch::Tensor& own, const torch::Tensor& whole, int64_t dimension) const;
  torch::Tensor sum(const torch::Tensor& whole, int64_t dimension) const;
  std::vector<torch::Tensor> gathered(const std::vector<torch::Tensor>& own,
                                      int64_t dimension) const;

  const RankExchange& exchange_;
};

// The batch with the targets of this rank's rows, and padding behind sequences that cannot be cut.
// What passes read of the sequences stays whole: the model takes its rows by itself.
Batch with_own_targets(Batch batch, const ContextShare& share);

// Throws UsageError where sequences of such a model, or of this length, cannot be cut for so many
// ranks.
void check_context_ranks(const ModelConfig& config, int64_t length, int64_t ranks);

}  // namespace tempera::nn
