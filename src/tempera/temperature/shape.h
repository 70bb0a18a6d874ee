#pragma once

#include <cstdint>
#include <string>

#include "tempera/temperature/options.h"

// What a method is told about its layer, and how it is written down; no torch in it, so that
// readers of model files need none.
namespace tempera {

// Where a model's weights come from decides some defaults of methods.
enum class Origin { kScratch, kLoaded };

enum class AttentionKind {
  kCausal,   // a decoder's self-attention
  kEncoder,  // bidirectional self-attention
  kCross     // queries of a causal decoder, keys of another sequence
};

// The layer that a method belongs to.
struct LayerShape {
  int64_t layers = 1;
  int64_t layer = 0;  // from 0
  int64_t d_model = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t qk_size = 0;  // columns of a row of q and k
  int64_t v_size = 0;
  int64_t vocabulary = 0;      // 0: unknown
  int64_t trained_length = 0;  // 0: unknown
  AttentionKind kind = AttentionKind::kCausal;
};

// A method by name with all its options: what a checkpoint keeps beside the parameters.
struct MethodSpec {
  std::string name;
  MethodOptions options;

  bool operator==(const MethodSpec&) const = default;
};

}  // namespace tempera
