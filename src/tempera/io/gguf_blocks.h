#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tempera/io/ggml_type.h"
#include "tempera/io/gguf.h"

namespace tempera::io {

// Rows are all but the last dimension taken together; a tensor without dimensions is one row of
// one.
int64_t row_count(const GgufTensor& tensor);
int64_t column_count(const GgufTensor& tensor);

// The elements of rows [begin, end), row-major, as floats. Reads F32, F16, BF16, Q8_0, Q4_0, Q4_1,
// Q5_0, Q5_1, Q4_K, Q5_K and Q6_K to the very bits of the Python package gguf; throws for other
// types, with their name. Rows are independent: callers may give ranges to several threads.
void dequantize_rows(const GgufTensor& tensor, int64_t begin, int64_t end, std::span<float> out);

// The same, rounded to the nearest bfloat16, ties to even; the elements are its bits.
void dequantize_rows(const GgufTensor& tensor, int64_t begin, int64_t end, std::span<uint16_t> out);

// Whole rows (at least whole blocks) as F32, F16, BF16 or one of the quantised types above; all but
// Q4_K, Q5_K and Q6_K, for which each writer has its own search, to the very bits of the Python
// package gguf. Throws for other types, and for a value that the type cannot hold: a finite one
// that F16 would make infinite; in the quantised types one that is not finite or whose block's
// scale or minimum would not be.
void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace tempera::io
