#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tempera/data/random.h"

namespace tempera::data {

// 64 bits over a run of bytes, against damage and not against malice. Every step is a bijection of
// its lane, so one changed word always changes the result; four lanes keep it near the speed of
// memory.
inline uint64_t checksum(std::span<const std::byte> bytes) {
  std::array<uint64_t, 4> lanes{0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL, 0xA4093822299F31D0ULL,
                                0x082EFA98EC4E6C89ULL};
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  const auto take = [&](uint64_t& lane, size_t size) {
    uint64_t word = 0;
    std::memcpy(&word, at, size);
    at += size;
    lane = std::rotl((lane ^ word) * kMultiplier, 29);
  };
  for (; left >= 32; left -= 32)
    for (uint64_t& lane : lanes) take(lane, 8);
  for (; left >= 8; left -= 8) take(lanes[0], 8);
  if (left > 0) take(lanes[1], left);
  uint64_t sum = mix64(bytes.size());
  for (const uint64_t lane : lanes) sum = mix64(sum * kMultiplier + lane);
  return sum;
}

}  // namespace tempera::data
