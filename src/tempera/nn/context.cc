#include "tempera/nn/context.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/nn/model.h"
#include "tempera/ops/memory.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor piece(const torch::Tensor& rows, int64_t dimension, int64_t index, int64_t size) {
  return rows.narrow(dimension, index * size, size);
}

// Sums of bfloat16 are made in float32.
torch::ScalarType sum_type(const torch::Tensor& rows) {
  return rows.scalar_type() == torch::kBFloat16 ? torch::kFloat32 : rows.scalar_type();
}

Batch padded(Batch batch, int64_t multiple) {
  const int64_t sequences = batch.tokens.size(0), length = batch.tokens.size(1);
  const int64_t more = (multiple - length % multiple) % multiple;
  if (more == 0) return batch;
  if (!batch.key_end.defined())
    batch.key_end = torch::full({sequences}, length, batch.tokens.options());
  if (batch.documents.defined())
    batch.documents = torch::constant_pad_nd(batch.documents, {0, 1}, more);
  const auto extend = [&](torch::Tensor& rows, double value) {
    if (rows.defined()) rows = torch::constant_pad_nd(rows, {0, more}, value);
  };
  extend(batch.tokens, 0);
  extend(batch.targets, -100);
  extend(batch.shares, 0);
  extend(batch.positions, 0);
  extend(batch.attention_scale, 1);
  return batch;
}

// Rows that come once more. What the way back needs of them holds their storage, and lets it go
// when it is done: nothing here may.
class Returning {
 public:
  Returning(const torch::Tensor& given, const torch::Tensor& all)
      : own(given.detach()),
        storage_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            all.storage().unsafeGetStorageImpl())),
        bytes_(all.nbytes()),
        sizes_(all.sizes().vec()) {}

  // With memory again; undefined: nothing needs them.
  torch::Tensor whole() const {
    auto storage = storage_.lock();
    if (!storage) return {};
    ops::take_memory(*storage, bytes_);
    return torch::empty({0}, own.options()).set_(c10::Storage(std::move(storage)), 0, sizes_);
  }

  torch::Tensor own;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  size_t bytes_;
  std::vector<int64_t> sizes_;
};

}  // namespace

struct ContextShare::Gather : torch::autograd::Function<Gather> {
  // As a list: autograd does not look into vectors.
  static variable_list forward(AutogradContext* context, const ContextShare* share,
                               int64_t dimension, at::TensorList own) {
    context->saved_data["share"] = reinterpret_cast<int64_t>(share);
    context->saved_data["dimension"] = dimension;
    variable_list whole;
    for (const auto& rows : own) {
      auto sizes = rows.sizes().vec();
      sizes[static_cast<size_t>(dimension)] *= share->ranks();
      whole.push_back(torch::empty(sizes, rows.options().requires_grad(false)));
      share->gather(rows, whole.back(), dimension);
    }
    return whole;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* share = reinterpret_cast<const ContextShare*>(context->saved_data["share"].toInt());
    const int64_t dimension = context->saved_data["dimension"].toInt();
    variable_list results(2);  // of what stands in front
    for (const auto& gradient : gradients) results.push_back(share->sum(gradient, dimension));
    return results;
  }
};

template <class Visit>
void ContextShare::for_pieces(Visit&& visit) const {
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    visit(rank, 0, rank);
    visit(rank, 1, 2 * ranks() - 1 - rank);
  }
}

torch::Tensor ContextShare::own_of(const torch::Tensor& all, int64_t dimension) const {
  const int64_t size = all.size(dimension) / (2 * ranks());
  const int64_t rank = exchange_.rank();
  return torch::cat(
      {piece(all, dimension, rank, size), piece(all, dimension, 2 * ranks() - 1 - rank, size)},
      dimension);
}

void ContextShare::gather(const torch::Tensor& own, const torch::Tensor& whole,
                          int64_t dimension) const {
  // Not an in-place change of what passes keep for their way back: the values are the same.
  const at::AutoDispatchBelowADInplaceOrView guard;
  const int64_t size = own.size(dimension) / 2;
  const auto flat = torch::empty({ranks(), own.numel()}, own.options());
  flat[exchange_.rank()].view(own.sizes()).copy_(own);
  exchange_.gather_parts(flat.view(-1).view(torch::kUInt8));
  for_pieces([&](int64_t rank, int64_t from, int64_t to) {
    piece(whole, dimension, to, size)
        .copy_(piece(flat[rank].view(own.sizes()), dimension, from, size));
  });
}

torch::Tensor ContextShare::sum(const torch::Tensor& whole, int64_t dimension) const {
  auto sizes = whole.sizes().vec();
  sizes[static_cast<size_t>(dimension)] /= ranks();
  const int64_t size = sizes[static_cast<size_t>(dimension)] / 2;
  const auto flat =
      torch::empty({ranks(), whole.numel() / ranks()}, whole.options().dtype(sum_type(whole)));
  for_pieces([&](int64_t rank, int64_t to, int64_t from) {
    piece(flat[rank].view(sizes), dimension, to, size).copy_(piece(whole, dimension, from, size));
  });
  exchange_.sum_parts(flat.view(-1));
  return flat[exchange_.rank()].view(sizes).to(whole.scalar_type(), /*non_blocking=*/false,
                                               /*copy=*/true);
}

std::vector<torch::Tensor> ContextShare::gathered(const std::vector<torch::Tensor>& own,
                                                  int64_t dimension) const {
  return Gather::apply(this, dimension, at::TensorList(own));
}

torch::Tensor ContextShare::whole(const torch::Tensor& own) const {
  return gathered({own}, 1).front();
}

ContextShare::Lent ContextShare::lend(std::vector<torch::Tensor> own) const {
  auto whole = gathered(own, 2);
  return {std::move(own), std::move(whole)};
}

void ContextShare::take_back(const Lent& lent, const torch::Tensor& out) const {
  std::vector<Returning> returning;
  for (size_t i = 0; i < lent.own.size(); ++i) {
    returning.emplace_back(lent.own[i], lent.whole[i]);
    ops::release_memory(lent.whole[i]);
  }
  if (!out.requires_grad()) return;
  out.register_hook([this, returning](const torch::Tensor&) {
    const torch::NoGradGuard no_grad;
    for (const auto& rows : returning)
      if (const auto whole = rows.whole(); whole.defined()) gather(rows.own, whole, 2);
  });
}

Batch with_own_targets(Batch batch, const ContextShare& share) {
  batch = padded(std::move(batch), 2 * share.ranks());
  if (batch.targets.defined()) batch.targets = share.own(batch.targets);
  if (batch.shares.defined()) batch.shares = share.own(batch.shares);
  return batch;
}

void check_context_ranks(const ModelConfig& config, int64_t length, int64_t ranks) {
  if (ranks <= 1) return;
  const auto refuse = [&](const std::string& why) {
    throw UsageError(concat("--context-ranks ", ranks, " given, ", why));
  };
  if (config.kind != ModelKind::kDecoder)
    refuse("and the model is no decoder: only a decoder's sequences are cut over ranks");
  if (config.position == PositionKind::kT5)
    refuse("and T5's positions need a bias for each pair of rows; only other positions are cut");
  if (config.dropout_embedding > 0 || config.dropout_attention > 0 || config.dropout_residual > 0)
    refuse(
        "and the model has dropout, which would not be that of one rank; give --model.dropout-* 0");
  if (length % (2 * ranks) != 0)
    refuse(concat("and sequences of ", length, " tokens; expected a multiple of ", 2 * ranks,
                  ", two pieces for each rank"));
}

}  // namespace tempera::nn
