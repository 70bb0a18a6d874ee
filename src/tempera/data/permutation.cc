#include "tempera/data/permutation.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "tempera/base/error.h"
#include "tempera/data/random.h"

namespace tempera::data {

Permutation::Permutation(uint64_t n, uint64_t key) : n_(n), keys_{} {
  TEMPERA_CHECK(n >= 1 && n <= uint64_t{1} << 62, "a permutation of ", n,
                " places; expected 1 to 2^62");
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(n - 1)) + 1) / 2);
  for (size_t round = 0; round < keys_.size(); ++round)
    keys_[round] = mix64(key + (round + 1) * 0x9E3779B97F4A7C15ULL);
}

uint64_t Permutation::operator()(uint64_t i) const {
  TEMPERA_CHECK(i < n_, "place ", i, " of a permutation of ", n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // The domain is less than four times n (but for tiny n), so this turns fewer than four times on
  // average.
  do {
    uint64_t left = i >> half_bits_;
    uint64_t right = i & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix64(right ^ key) & mask);
      left = right;
      right = next;
    }
    i = left << half_bits_ | right;
  } while (i >= n_);
  return i;
}

}  // namespace tempera::data
