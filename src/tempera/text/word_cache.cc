#include "tempera/text/word_cache.h"

#include <cstring>

namespace tempera::text {
namespace {

constexpr size_t kFirstEntries = 1 << 12;
constexpr size_t kMostEntries = 1 << 17;

}  // namespace

uint64_t WordCache::hash(std::string_view word) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;
  uint64_t value = word.size() * kFactor;
  const auto mix = [&](uint64_t bytes) {
    value = (value ^ bytes) * kFactor;
    value ^= value >> 32;
  };
  const char* at = word.data();
  size_t left = word.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, at, 8);
    mix(bytes);
  }
  if (left > 0) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, at, left);
    mix(bytes);
  }
  return value;
}

bool WordCache::find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
  if (entries_.empty()) return false;
  const size_t mask = entries_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slot];
    if (entry.size == 0) return false;
    if (entry.hash != hash || entry.size != word.size() ||
        std::memcmp(words_.data() + entry.word, word.data(), word.size()) != 0)
      continue;
    if (entry.count == 1) {
      ids.push_back(static_cast<int32_t>(entry.ids));
    } else {
      const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(entry.ids);
      ids.insert(ids.end(), begin, begin + entry.count);
    }
    return true;
  }
}

void WordCache::grow() {
  if (entries_.size() >= kMostEntries) {
    entries_.assign(entries_.size(), Entry{});
    words_.clear();
    ids_.clear();
    used_ = 0;
    return;
  }
  std::vector<Entry> old(entries_.empty() ? kFirstEntries : 2 * entries_.size());
  old.swap(entries_);
  const size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.size == 0) continue;
    size_t slot = entry.hash & mask;
    while (entries_[slot].size != 0) slot = (slot + 1) & mask;
    entries_[slot] = entry;
  }
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kLongestWord) return;
  if (2 * (used_ + 1) > entries_.size()) grow();
  const size_t mask = entries_.size() - 1;
  size_t slot = hash & mask;
  while (entries_[slot].size != 0) slot = (slot + 1) & mask;
  ++used_;
  Entry& entry = entries_[slot];
  entry = {.hash = hash,
           .word = static_cast<uint32_t>(words_.size()),
           .ids = static_cast<uint32_t>(ids_.size()),
           .size = static_cast<uint16_t>(word.size()),
           .count = static_cast<uint16_t>(ids.size())};
  words_ += word;
  if (ids.size() == 1)
    entry.ids = static_cast<uint32_t>(ids[0]);
  else
    ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace tempera::text
