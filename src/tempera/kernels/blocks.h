#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tempera/kernels/attention.h"

// Rows times a matrix whose numbers are stored in blocks of few bits, by products of whole numbers.
namespace tempera::kernels {

// Layouts of blocks along a row; d and m are half-precision floats, values are d q + m.
// - kQ4_0, kQ5_0, kQ8_0, of 32: d, for 5 bits the fifth bits, q; q is signed.
// - kQ4_1, kQ5_1, of 32: d, m, for 5 bits the fifth bits, q.
// - kQ4_K, kQ5_K, of 256 in groups of 32 with 6-bit multiples of d and m.
// - kQ6_K, of 256 in groups of 16 with 8-bit multiples of d, which is last.
// io/gguf_dequantize.cc has each bit's place.
enum class BlockType : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct BlockLayout {
  int64_t elements, bytes;
};
BlockLayout block_layout(BlockType type);

// Some rows of the matrix, of one type and one behind the other. Bytes may start anywhere.
struct BlockRows {
  BlockType type = BlockType::kQ4_0;
  int64_t rows = 0;
  const uint8_t* bytes = nullptr;
  // Where among these rows each one's result goes; absent: its own place.
  const int64_t* place = nullptr;
};

// y (rows, outputs) = x (rows, inputs) times weight^T + bias, the rows of all parts being the
// outputs. X is float or BFloat16. A row of x becomes 8-bit numbers with a scale for each 32 of
// them; sums within a block are exact. Columns of x and y are contiguous, strides count elements.
template <class X>
struct BlockProductParams {
  int64_t rows = 0, inputs = 0;  // inputs: whole blocks of each part's type
  std::span<const BlockRows> parts = {};
  const X* x = nullptr;
  int64_t x_stride = 0;
  const float* bias = nullptr;  // (outputs); absent: 0
  X* y = nullptr;
  int64_t y_stride = 0;
};

// Bytes of scratch memory, which starts at a multiple of 64.
int64_t block_product_workspace(int64_t rows, int64_t inputs, int workers);

// An output depends on its own row of x and of the weight alone: neither the number of workers nor
// the other rows change a bit of it.
template <class X>
void block_product(const BlockProductParams<X>& params, Parallel& parallel, std::byte* workspace);

}  // namespace tempera::kernels
