#include "tempera/nn/paged_cache.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::nn {
namespace {

void check(const PagedRows& rows, const PagedCache& cache) {
  const auto batch = static_cast<int64_t>(rows.sequences.size());
  TEMPERA_CHECK(rows.tokens.dim() == 2 && rows.tokens.size(0) == batch && batch > 0 &&
                    rows.tokens.size(1) > 0 && (batch == 1 || rows.tokens.size(1) == 1),
                "tokens of the shape ", rows.tokens.sizes(), " given for ", batch,
                " sequences: any number of one sequence or one for each expected");
  for (const auto& sequence : rows.sequences) {
    const int64_t room = static_cast<int64_t>(sequence.blocks.size()) * cache.block_size();
    TEMPERA_CHECK(batch == 1 || sequence.length > 0, "a sequence begins in a pass of its own");
    TEMPERA_CHECK(sequence.length >= 0 && sequence.length + rows.tokens.size(1) <= room,
                  "a sequence has room for ", room, " rows: ", sequence.length, " are there and ",
                  rows.tokens.size(1), " more given");
    for (const int64_t block : sequence.blocks)
      TEMPERA_CHECK(block >= 0 && block < cache.blocks(), "block ", block, " given of ",
                    cache.blocks());
  }
}

}  // namespace

PagedPlace PagedRows::place(const PagedCache& cache, const torch::Device& device) const {
  check(*this, cache);
  const int64_t size = cache.block_size(), count = tokens.size(1);
  size_t width = 0;
  for (const auto& sequence : sequences) width = std::max(width, sequence.blocks.size());
  PagedPlace place;
  std::vector<int32_t> table;
  std::vector<int64_t> slots, before;
  for (const auto& sequence : sequences) {
    const auto slot = [&](int64_t row) {
      return sequence.blocks[static_cast<size_t>(row / size)] * size + row % size;
    };
    for (int64_t row = 0; row < count; ++row) slots.push_back(slot(sequence.length + row));
    before.push_back(sequence.length > 0 ? slot(sequence.length - 1) : -1);
    for (size_t i = 0; i < width; ++i)
      table.push_back(i < sequence.blocks.size() ? static_cast<int32_t>(sequence.blocks[i]) : 0);
    place.length = std::max(place.length, sequence.length);
  }
  const auto batch = static_cast<int64_t>(sequences.size());
  place.table = torch::tensor(table, torch::kInt32).view({batch, -1}).to(device);
  place.slots = torch::tensor(slots, torch::kInt64).view({batch, count}).to(device);
  place.before = torch::tensor(before, torch::kInt64).to(device);
  return place;
}

torch::Tensor PagedRows::before(const torch::Device& device) const {
  std::vector<int64_t> ids;
  for (const auto& sequence : sequences) ids.push_back(sequence.last_token);
  if (ids.front() < 0) return {};
  return torch::tensor(ids, torch::kInt64).unsqueeze(1).to(device);
}

}  // namespace tempera::nn
