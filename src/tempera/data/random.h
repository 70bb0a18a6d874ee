#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tempera/base/error.h"

// Random numbers as a function and not as a state: the stream of (seed, step, lane) is the same
// whatever was drawn before, so that a resumed run replays nothing and rows can be made in any
// order by any number of workers.
namespace tempera::data {

using PhiloxBlock = std::array<uint32_t, 4>;

// Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
constexpr PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

// A bijection of 64 bits in which every input bit moves every output bit (the finaliser of
// splitmix64).
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The seed of a named purpose, so that two uses of one seed never share a stream.
constexpr uint64_t derive_seed(uint64_t seed, std::string_view purpose) {
  uint64_t name = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : purpose) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return mix64(mix64(seed + 0x9E3779B97F4A7C15ULL) ^ name);
}

class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t step, uint32_t lane = 0)
      : key_(seed),
        counter_{0, lane, static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)} {}

  uint32_t next32() {
    if (used_ == block_.size()) {
      TEMPERA_CHECK(!spent_, "a random stream gives 2^34 numbers and no more; use another lane");
      block_ = philox(counter_, key_);
      spent_ = ++counter_[0] == 0;
      used_ = 0;
    }
    return block_[used_++];
  }

  uint64_t next64() {
    const uint64_t low = next32();
    return low | uint64_t{next32()} << 32;
  }

  // Uniform in [0, n), n > 0, without the bias of a modulo: Lemire's multiplication with rejection.
  uint32_t below(uint32_t n) {
    uint64_t product = uint64_t{next32()} * n;
    if (static_cast<uint32_t>(product) < n) [[unlikely]] {
      const uint32_t reject = (0U - n) % n;
      while (static_cast<uint32_t>(product) < reject) product = uint64_t{next32()} * n;
    }
    return static_cast<uint32_t>(product >> 32);
  }

  // Uniform in [low, high], both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint32_t>(high - low + 1)));
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next64() >> 11) * 0x1p-53; }

  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t left = items.size(); left > 1; --left)
      std::swap(items[left - 1], items[below(static_cast<uint32_t>(left))]);
  }

 private:
  uint64_t key_;
  PhiloxBlock counter_;
  PhiloxBlock block_{};
  size_t used_ = 4;
  bool spent_ = false;
};

// Draws distinct numbers of [0, n) in random order: Fisher-Yates stopped after the first k, and
// undone, so that a draw costs k and not n.
class DistinctSampler {
 public:
  explicit DistinctSampler(uint32_t n) : pool_(n) { std::iota(pool_.begin(), pool_.end(), 0U); }

  void sample(RandomStream& random, std::span<uint32_t> out) {
    const auto n = static_cast<uint32_t>(pool_.size());
    TEMPERA_CHECK(out.size() <= n, "cannot draw ", out.size(), " distinct numbers of ", n);
    swaps_.resize(out.size());
    for (uint32_t i = 0; i < out.size(); ++i) {
      swaps_[i] = i + random.below(n - i);
      std::swap(pool_[i], pool_[swaps_[i]]);
      out[i] = pool_[i];
    }
    for (size_t i = out.size(); i-- > 0;) std::swap(pool_[i], pool_[swaps_[i]]);
  }

 private:
  std::vector<uint32_t> pool_;
  std::vector<uint32_t> swaps_;
};

}  // namespace tempera::data
