#include "tempera/serve/block_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tempera/base/testing.h"

namespace tempera::serve {
namespace {

using Ids = std::vector<int64_t>;

Ids tokens(int64_t count, int64_t first = 0) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(BlockPool, GivesEachBlockOnce) {
  BlockPool pool(4, 2);
  const auto first = *pool.take(3);
  EXPECT_FALSE(pool.take(2));
  EXPECT_EQ(pool.used(), 3);
  pool.release(first);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_TRUE(pool.take(4));
  EXPECT_TRUE(says(message_of([&] {
                     pool.release(first);
                     pool.release(first);
                   }),
                   "released twice"));
}

TEST(BlockPool, KeepsWhatPromptsBeginWith) {
  BlockPool pool(6, 2);
  const auto blocks = *pool.take(3);
  pool.keep_prefix(tokens(6), blocks, 0);
  EXPECT_EQ(pool.take_prefix(tokens(4), 0), (Ids{blocks[0], blocks[1]}));
  EXPECT_EQ(pool.take_prefix(tokens(5), 0), (Ids{blocks[0], blocks[1]}));
  EXPECT_TRUE(pool.take_prefix(tokens(6, 1), 0).empty());
  // The same tokens behind others are other keys.
  EXPECT_EQ(pool.take_prefix({{0, 1, 4, 5}}, 0), (Ids{blocks[0]}));
  // And so are those of another kind.
  EXPECT_TRUE(pool.take_prefix(tokens(4), 1).empty());
  EXPECT_EQ(pool.used(), 3);
  const auto other = *pool.take(1);
  pool.keep_prefix(tokens(2), other, 1);
  EXPECT_EQ(pool.take_prefix(tokens(4), 1), other);
  EXPECT_EQ(pool.take_prefix(tokens(2), 0), (Ids{blocks[0]}));
}

TEST(BlockPool, TakesBackTheLongestUnused) {
  BlockPool pool(4, 2);
  const auto old = *pool.take(2);
  pool.keep_prefix(tokens(4), old, 0);
  pool.release(old);
  const auto young = *pool.take(2);
  pool.keep_prefix(tokens(4, 10), young, 0);
  pool.release(young);
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(*pool.take(1), (Ids{old[1]}));  // the end of a prompt goes before its beginning
  EXPECT_EQ(pool.take_prefix(tokens(4), 0), (Ids{old[0]}));
  EXPECT_EQ(pool.take_prefix(tokens(4, 10), 0), young);
  EXPECT_FALSE(pool.take(1));
}

TEST(BlockPool, ForgetsWhatStoodBehindABlockThatWent) {
  BlockPool pool(2, 2);
  const auto blocks = *pool.take(2);
  pool.keep_prefix(tokens(4), blocks, 0);
  pool.release({{blocks[0]}});
  const auto again = *pool.take(1);
  EXPECT_EQ(again, (Ids{blocks[0]}));
  EXPECT_TRUE(pool.take_prefix(tokens(4), 0).empty());
  pool.keep_prefix(tokens(2), again, 0);
  EXPECT_EQ(pool.take_prefix(tokens(4), 0), again);  // its successor is not what it was
}

}  // namespace
}  // namespace tempera::serve
