#include "tempera/train/bucket_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tempera/nn/block.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

// Every parameter begins where a line of the cache does.
constexpr int64_t kAligned = 16;
// Large enough that a network is busy with it; at least a few of them, so that the first are sent
// while the rest is computed.
constexpr int64_t kMostElements = 8 << 20;
constexpr int64_t kFewestElements = 64 << 10;
constexpr int64_t kBuckets = 8;

int64_t aligned(int64_t length) { return (length + kAligned - 1) / kAligned * kAligned; }

BucketPlan cut_anywhere(const std::vector<Place>& members, int64_t ranks) {
  BucketPlan plan{.places = members};
  for (Place& place : plan.places)
    place.begin = std::exchange(plan.length, plan.length + aligned(place.length));
  plan.length = aligned((plan.length + ranks - 1) / ranks) * ranks;
  return plan;
}

// The largest first, each into the emptiest part.
BucketPlan cut_between(std::vector<Place> members, int64_t ranks) {
  std::ranges::stable_sort(members, std::ranges::greater(), &Place::length);
  std::vector<int64_t> filled(static_cast<size_t>(ranks)), part_of;
  for (Place& place : members) {
    const auto emptiest = std::ranges::min_element(filled);
    part_of.push_back(emptiest - filled.begin());
    place.begin = std::exchange(*emptiest, *emptiest + aligned(place.length));
  }
  const int64_t part = std::ranges::max(filled);
  for (size_t i = 0; i < members.size(); ++i) members[i].begin += part_of[i] * part;
  return {.places = std::move(members), .length = part * ranks};
}

// Adds buckets of those parameters, from the last to the first.
void fill_buckets(const std::vector<nn::NamedParameter>& parameters, const std::vector<size_t>& own,
                  int64_t wanted, const BucketOptions& options, std::vector<BucketPlan>& plans) {
  // Whole matrices, and what is cut anywhere, fill buckets of their own.
  struct Open {
    std::vector<Place> members;
    int64_t length = 0;
  };
  Open whole, others;
  const auto close = [&](Open& open) {
    if (open.members.empty()) return;
    plans.push_back(&open == &whole ? cut_between(std::move(open.members), options.ranks)
                                    : cut_anywhere(open.members, options.ranks));
    open = {};
  };
  for (size_t i = own.size(); i-- > 0;) {
    const nn::NamedParameter& parameter = parameters[own[i]];
    const bool is_whole = options.whole_matrices && is_hidden_matrix(parameter);
    Open& open = is_whole ? whole : others;
    const int64_t length = parameter.tensor.numel();
    open.members.push_back({own[i], 0, length});
    open.length += length;
    const bool fills_parts = !is_whole || std::ssize(open.members) % options.ranks == 0;
    if (open.length >= wanted && fills_parts) close(open);
  }
  close(whole);
  close(others);
}

}  // namespace

bool is_hidden_matrix(const nn::NamedParameter& parameter) {
  return parameter.kind == nn::ParameterKind::kMatrix && parameter.tensor.dim() == 2;
}

ModelBlocks blocks_of(const nn::Model& model, const std::vector<nn::NamedParameter>& parameters) {
  ModelBlocks found{{}, std::vector<int64_t>(parameters.size(), -1)};
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (!module->as<nn::Block>()) continue;
    for (const auto& own : module->parameters())
      for (size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].tensor.is_same(own)) found.of_parameters[i] = std::ssize(found.modules);
    found.modules.push_back(module.get());
  }
  return found;
}

BucketOptions bucket_options(const nn::Model& model,
                             const std::vector<nn::NamedParameter>& parameters, Sharding sharding,
                             int64_t ranks, OptimizerKind optimizer) {
  BucketOptions options{
      .ranks = ranks,
      .whole_matrices = optimizer == OptimizerKind::kMuon && sharding != Sharding::kNone};
  if (sharding == Sharding::kAll) options.blocks = blocks_of(model, parameters).of_parameters;
  return options;
}

std::vector<BucketPlan> plan_buckets(const std::vector<nn::NamedParameter>& parameters,
                                     const BucketOptions& options) {
  std::vector<BucketPlan> plans;
  if (options.blocks.empty()) {
    int64_t total = 0;
    for (const auto& parameter : parameters) total += parameter.tensor.numel();
    const int64_t wanted = options.elements > 0
                               ? options.elements
                               : std::clamp(total / kBuckets, kFewestElements, kMostElements);
    std::vector<size_t> all(parameters.size());
    std::iota(all.begin(), all.end(), size_t{0});
    fill_buckets(parameters, all, wanted, options, plans);
    return plans;
  }
  for (int64_t block = std::ranges::max(options.blocks); block >= -1; --block) {
    std::vector<size_t> own;
    for (size_t i = 0; i < parameters.size(); ++i)
      if (options.blocks[i] == block) own.push_back(i);
    const size_t before = plans.size();
    fill_buckets(parameters, own, std::numeric_limits<int64_t>::max(), options, plans);
    for (size_t i = before; i < plans.size(); ++i) plans[i].block = block;
  }
  return plans;
}

}  // namespace tempera::train
