#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tempera::serve {

// Who has which block of a paged cache. A full block of a prompt may be kept when its sequence has
// ended, for prompts that begin alike; it goes when memory is wanted, the longest unused first.
class BlockPool {
 public:
  BlockPool(int64_t blocks, int64_t block_size);

  int64_t block_size() const { return block_size_; }
  int64_t blocks() const { return static_cast<int64_t>(owners_.size()); }
  // Blocks that sequences have.
  int64_t used() const { return blocks() - free(); }
  // Those that take() can give.
  int64_t free() const { return static_cast<int64_t>(free_.size() + idle_.size()); }

  // So many blocks; none if there are not enough.
  std::optional<std::vector<int64_t>> take(int64_t count);
  // Another owner's, or take()'s own.
  void release(std::span<const int64_t> blocks);

  // The kept blocks that hold the beginning of the tokens, in order, for one more owner. Blocks of
  // different kinds hold different things of the same tokens.
  std::vector<int64_t> take_prefix(std::span<const int64_t> tokens, int64_t kind);
  // Keeps the blocks, which hold the beginning of the tokens, for others; those of tokens that are
  // kept already stay as they are.
  void keep_prefix(std::span<const int64_t> tokens, std::span<const int64_t> blocks, int64_t kind);

 private:
  // What is in a kept block: its kind, and its tokens behind those of another. Numbers are given
  // once, so that a block that has gone is never taken for its successor.
  using Content = std::tuple<int64_t, uint64_t, std::vector<int64_t>>;
  struct Kept {
    int64_t block;
    uint64_t number;
  };
  using KeptMap = std::map<Content, Kept>;

  Content content(int64_t kind, uint64_t before, std::span<const int64_t> tokens,
                  size_t block) const;
  void forget_oldest();

  int64_t block_size_;
  std::vector<int64_t> owners_;                            // of each block, how many
  std::vector<int64_t> free_;                              // blocks without owner and content
  std::set<std::pair<uint64_t, int64_t>> idle_;            // kept ones without owner, by last use
  std::vector<uint64_t> used_at_;                          // of each block
  std::vector<std::optional<KeptMap::iterator>> content_;  // of each block
  KeptMap kept_;
  uint64_t clock_ = 0, number_ = 0;
};

}  // namespace tempera::serve
