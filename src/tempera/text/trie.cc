#include "tempera/text/trie.h"

namespace tempera::text {

Trie::Trie() : edges_(64), mask_(63), values_{-1} {}

void Trie::insert_edge(Edge edge) {
  size_t slot = place(edge.key);
  while (edges_[slot].key != 0) slot = (slot + 1) & mask_;
  edges_[slot] = edge;
}

uint32_t Trie::add_child(uint32_t node, unsigned char byte) {
  const auto next = static_cast<uint32_t>(values_.size());
  values_.push_back(-1);
  if (node == 0) return root_[byte] = next;
  if (2 * ++used_ > edges_.size()) {
    std::vector<Edge> old(2 * edges_.size());
    old.swap(edges_);
    mask_ = edges_.size() - 1;
    for (const Edge& edge : old)
      if (edge.key != 0) insert_edge(edge);
  }
  insert_edge({edge_key(node, byte), next});
  return next;
}

void Trie::add(std::string_view key, int32_t value) {
  if (key.empty()) return;
  uint32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const uint32_t next = child(node, byte);
    node = next != 0 ? next : add_child(node, byte);
  }
  values_[node] = value;
}

}  // namespace tempera::text
