#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/kernels/attention.h"
#include "tempera/kernels/mask.h"

// One list of cases that drives correctness, gradients and benchmarks. A case says what an
// attention call looks like; problem.h makes the call.
namespace tempera::kernels {

// What a scale is made of.
struct ScaleCase {
  bool rows = false;
  bool w = false;
  bool g = false;
  bool c = false;
  bool s = false;
  bool own_source = true;     // w reads the operand itself
  int64_t extra_columns = 0;  // of a source that is not the operand
};

enum class ScaleSigns { kUsual, kZeros, kNegative };
enum class BiasCase {
  kNone,
  kFull,
  kHeads,
  kShared
};  // broadcast over nothing, batch, batch and heads
enum class LayoutCase {
  kHeadsFirst,
  kRowsFirst,
  kPadded
};                                                   // (B, H, T, D), (B, T, H, D), rows with gaps
enum class WantedCase { kAll, kOperands, kScales };  // which gradients

struct Case {
  std::string name;
  Shape shape;
  bool causal = false;
  int64_t window = 0;
  int64_t query_offset = 0;
  std::vector<std::vector<int64_t>>
      documents;  // of the queries, and of the keys unless those have their own
  std::vector<std::vector<int64_t>> key_documents = {};  // cross-attention
  std::vector<KeyRange> content =
      {};  // the rows that are not padding; self-attention: of both sides
  ScaleCase q_scale = {}, k_scale = {}, v_scale = {};
  ScaleSigns signs = ScaleSigns::kUsual;
  BiasCase bias = BiasCase::kNone;
  double cap = 0;
  bool post = false;
  bool sinks = false;
  double dropout = 0;
  bool d_lse = false;
  bool statistics = true;  // max, entropy and head_max are asked for
  double magnitude = 1;    // of the queries: large ones make large logits
  LayoutCase layout = LayoutCase::kHeadsFirst;
  int64_t offset = 0;  // elements between an aligned address and the data
  WantedCase wanted = WantedCase::kAll;
  // Decoding: rows of the cache in use. shape.kv_rows is the capacity.
  std::vector<int32_t> lengths = {};
  int64_t block_size = 0;  // > 0: paged

  bool decodes() const { return !lengths.empty(); }
};

// Small enough for the reference in a test.
const std::vector<Case>& attention_cases();
const std::vector<Case>& decode_cases();
// Too large for it; for benchmarks: T 256, 1024, 4096, D 64, 128, plain and with the scales of SSA.
const std::vector<Case>& bench_cases();

}  // namespace tempera::kernels
