#pragma once

#include <array>
#include <cstdint>

namespace tempera::data {

// A keyed bijection of [0, n) that is computed and not stored: place i of the shuffled order is
// known without the places before it. A Feistel network over the next even number of bits, walked
// until it lands below n.
class Permutation {
 public:
  // n >= 1
  Permutation(uint64_t n, uint64_t key);
  uint64_t size() const { return n_; }
  // i < n
  uint64_t operator()(uint64_t i) const;

 private:
  static constexpr int kRounds = 6;
  uint64_t n_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace tempera::data
