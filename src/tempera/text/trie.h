#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tempera::text {

// Byte strings with a value each; finds those that a text starts with.
class Trie {
 public:
  Trie();
  // A later value replaces an earlier one of the same key. The value is not negative.
  void add(std::string_view key, int32_t value);
  bool empty() const { return values_.size() == 1; }
  // Whether any key starts with the byte.
  bool may_start(char c) const { return root_[static_cast<unsigned char>(c)] != 0; }

  // Calls visit(size, value) for every key that the text starts with, the shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) visit(i + 1, values_[node]);
    }
  }

  struct Match {
    size_t size = 0;  // 0: none
    int32_t value = -1;
  };
  Match longest(std::string_view text) const {
    Match match;
    prefixes(text, [&](size_t size, int32_t value) { match = {size, value}; });
    return match;
  }

 private:
  struct Edge {
    uint64_t key = 0;  // node and byte, plus one; 0: free
    uint32_t child = 0;
  };

  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return root_[byte];
    const uint64_t key = edge_key(node, byte);
    for (size_t slot = place(key);; slot = (slot + 1) & mask_) {
      if (edges_[slot].key == key) return edges_[slot].child;
      if (edges_[slot].key == 0) return 0;
    }
  }
  static uint64_t edge_key(uint32_t node, unsigned char byte) {
    return (static_cast<uint64_t>(node) << 8 | byte) + 1;
  }
  size_t place(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15U) >> 20) & mask_;
  }
  uint32_t add_child(uint32_t node, unsigned char byte);
  void insert_edge(Edge edge);

  std::array<uint32_t, 256> root_{};
  std::vector<Edge> edges_;  // open addressing
  size_t mask_ = 0;
  size_t used_ = 0;
  std::vector<int32_t> values_;  // of each node; -1: no key ends here
};

}  // namespace tempera::text
