#include "tempera/serve/block_pool.h"

#include "tempera/base/error.h"

namespace tempera::serve {

BlockPool::BlockPool(int64_t blocks, int64_t block_size)
    : block_size_(block_size),
      owners_(static_cast<size_t>(blocks)),
      used_at_(static_cast<size_t>(blocks)),
      content_(static_cast<size_t>(blocks)) {
  TEMPERA_CHECK(blocks > 0 && block_size > 0, "a cache of ", blocks, " blocks of ", block_size,
                " rows given; both must be above 0");
  for (int64_t block = blocks; block > 0; --block) free_.push_back(block - 1);
}

std::optional<std::vector<int64_t>> BlockPool::take(int64_t count) {
  if (count > free()) return {};
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < count; ++i) {
    if (free_.empty()) forget_oldest();
    blocks.push_back(free_.back());
    free_.pop_back();
    owners_[static_cast<size_t>(blocks.back())] = 1;
  }
  return blocks;
}

void BlockPool::release(std::span<const int64_t> blocks) {
  // From the end: what begins a prompt is of use to more prompts than what ends it.
  for (size_t i = blocks.size(); i-- > 0;) {
    const auto block = static_cast<size_t>(blocks[i]);
    TEMPERA_CHECK(owners_[block] > 0, "block ", blocks[i], " was released twice");
    if (--owners_[block] > 0) continue;
    if (content_[block]) {
      used_at_[block] = ++clock_;
      idle_.emplace(used_at_[block], blocks[i]);
    } else {
      free_.push_back(blocks[i]);
    }
  }
}

BlockPool::Content BlockPool::content(int64_t kind, uint64_t before,
                                      std::span<const int64_t> tokens, size_t block) const {
  const auto size = static_cast<size_t>(block_size_);
  const auto part = tokens.subspan(block * size, size);
  return {kind, before, {part.begin(), part.end()}};
}

std::vector<int64_t> BlockPool::take_prefix(std::span<const int64_t> tokens, int64_t kind) {
  std::vector<int64_t> blocks;
  uint64_t before = 0;
  for (size_t i = 0; i < tokens.size() / static_cast<size_t>(block_size_); ++i) {
    const auto found = kept_.find(content(kind, before, tokens, i));
    if (found == kept_.end()) break;
    const int64_t block = found->second.block;
    if (owners_[static_cast<size_t>(block)]++ == 0)
      idle_.erase({used_at_[static_cast<size_t>(block)], block});
    blocks.push_back(block);
    before = found->second.number;
  }
  return blocks;
}

void BlockPool::keep_prefix(std::span<const int64_t> tokens, std::span<const int64_t> blocks,
                            int64_t kind) {
  uint64_t before = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto block = static_cast<size_t>(blocks[i]);
    auto found = kept_.find(content(kind, before, tokens, i));
    if (found == kept_.end() && !content_[block]) {
      found = kept_.emplace(content(kind, before, tokens, i), Kept{blocks[i], ++number_}).first;
      content_[block] = found;
    }
    if (found == kept_.end()) return;
    before = found->second.number;
  }
}

void BlockPool::forget_oldest() {
  const int64_t block = idle_.begin()->second;
  idle_.erase(idle_.begin());
  auto& content = content_[static_cast<size_t>(block)];
  kept_.erase(*content);
  content.reset();
  free_.push_back(block);
}

}  // namespace tempera::serve
