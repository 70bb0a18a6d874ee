#include "tempera/train/context_ranks.h"

namespace tempera::train {

ContextRanks::ContextRanks(dist::World& world, nn::Model& model, int64_t ranks)
    : model_(model), team_(world, ranks), share_(*this) {
  model.set_context_share(&share_);
}

}  // namespace tempera::train
