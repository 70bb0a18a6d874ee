#pragma once

#include "tempera/kernels/cuda/device.cuh"

// Tiles of rows in shared memory and their products. A warp has 16 kM rows of a product; its
// numbers lie as the tensor cores leave them: c[m][n][e] of a lane is row 16 m + lane / 4 (+ 8 for
// e >= 2), column 8 n + 2 (lane % 4) + e % 2. Rows of a tile are tile_stride apart.
namespace tempera::kernels::cuda {

constexpr int kTileRows = 16;  // of one product of the tensor cores

// Elements from one row of a tile to the next: 16 bytes more than the row, against bank conflicts.
template <class T>
constexpr int tile_stride(int columns) {
  return columns + 16 / static_cast<int>(sizeof(T));
}

__host__ __device__ constexpr int padded_depth(int64_t size) {
  return static_cast<int>((size + 15) / 16 * 16);
}

// Which part of a tile's rows a thread copies: packs of 16 bytes, some columns of every kStep-th
// row.
template <class T, int kColumns, int kThreads>
struct CopyShape {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kPacks = kColumns / kElements;  // of a row, a power of 2
  static constexpr int kWide = kPacks < kThreads ? kPacks : kThreads;
  static constexpr int kStep = kThreads / kWide;
};

// Copies rows [first, first + kRows) into a tile; those outside of [begin, end) and columns from
// `size` to the next multiple of 16 become 0. row(r) is where row r begins, whole: rows are made of
// whole vectors. All kThreads threads call it; finished by commit_copies, await_copies and a
// barrier.
template <int kColumns, int kRows, int kThreads, class T, class Row>
__device__ inline void copy_tile(T* tile, int first, int begin, int end, int size, bool whole,
                                 Row row) {
  using C = CopyShape<T, kColumns, kThreads>;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int r = thread / C::kWide; r < kRows; r += C::kStep) {
    const T* const from = first + r >= begin && first + r < end ? row(first + r) : nullptr;
#pragma unroll
    for (int i = 0; i < C::kPacks / C::kWide; ++i) {
      const int column = (i * C::kWide + thread % C::kWide) * C::kElements;
      if (column >= padded_depth(size)) break;
      T* const to = tile + r * tile_stride<T>(kColumns) + column;
      const bool inside = from && column < size;
      if (inside && whole) {
        copy_bytes<16>(to, from + column, 16);
      } else {
#pragma unroll
        for (int e = 0; e < C::kElements; ++e) to[e] = inside ? from[column + e] : T{};
      }
    }
  }
}

// The same of rows that are `stride` apart; `rows` is row 0.
template <int kColumns, int kRows, int kThreads, class T>
__device__ inline void copy_rows(T* tile, const T* rows, int64_t stride, int first, int begin,
                                 int end, int size, bool whole) {
  using C = CopyShape<T, kColumns, kThreads>;
  static_assert(kRows % C::kStep == 0);
  if (!whole)
    return copy_tile<kColumns, kRows, kThreads>(tile, first, begin, end, size, whole,
                                                [&](int r) { return rows + r * stride; });
  const int thread = static_cast<int>(threadIdx.x), row = thread / C::kWide;
#pragma unroll
  for (int i = 0; i < C::kPacks / C::kWide; ++i) {
    const int column = (i * C::kWide + thread % C::kWide) * C::kElements;
    if (column >= padded_depth(size)) break;
    const int bytes = column < size ? 16 : 0;
    const T* from = rows + (first + row) * stride + column;
    T* const to = tile + row * tile_stride<T>(kColumns) + column;
    const auto from_begin = static_cast<unsigned>(first + row - begin);
    const auto count = static_cast<unsigned>(end - begin);
#pragma unroll
    for (int step = 0; step < kRows; step += C::kStep) {
      copy_bytes<16>(to + step * tile_stride<T>(kColumns), from,
                     from_begin + step < count ? bytes : 0);
      from += C::kStep * stride;
    }
  }
}

// Numbers [first, first + kRows) of an array, `stride` apart; those outside of [begin, end) become
// 0.
template <int kRows, int kThreads, class X>
__device__ inline void copy_numbers(X* to, const X* from, int64_t stride, int first, int begin,
                                    int end) {
  static_assert(sizeof(X) == 4);
#pragma unroll
  for (int step = 0; step < kRows; step += kThreads) {
    const int r = step + static_cast<int>(threadIdx.x);
    if (r < kRows)
      copy_bytes<4>(to + r, from + (first + r) * stride,
                    first + r >= begin && first + r < end ? 4 : 0);
  }
}

__device__ inline void load_matrices(uint32_t (&to)[4], const BFloat16* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}
__device__ inline void load_transposed(uint32_t (&to)[4], const BFloat16* from) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}

// c = A B^T: A 16 kM rows of a tile, B 8 kTiles rows of one, both with `depth` columns, a multiple
// of 16.
template <int kColumns, int kM, int kTiles>
__device__ inline void product_rows(float (&c)[kM][kTiles][4], const BFloat16* a, const BFloat16* b,
                                    int depth) {
  static_assert(kTiles % 2 == 0);
  constexpr int kStride = tile_stride<BFloat16>(kColumns);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BFloat16* const a_lane = a + lane % 16 * kStride + lane / 16 * 8;
  const BFloat16* const b_lane = b + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0;
  const auto add = [&](int k) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices(left[m], a_lane + m * kTileRows * kStride + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t right[4];
      load_matrices(right, b_lane + n * 8 * kStride + k);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c[m][n], left[m], right[0], right[1]);
        multiply(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  };
  if (depth == kColumns) {
#pragma unroll
    for (int k = 0; k < kColumns; k += 16) add(k);
  } else {
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) add(k);
  }
}

template <int kColumns, int kTiles>
__device__ inline void product_rows(float (&result)[1][kTiles][4], const float* a, const float* b,
                                    int depth) {
  constexpr int kStride = tile_stride<float>(kColumns);
  auto& c = result[0];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const a_lane = a + lane / 4 * kStride;
  const float* const b_lane = b + lane % 4 * 2 * kStride;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = 0;
  const auto dot = [](float4 x, float4 y, float sum) {
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
  };
  for (int k = 0; k < depth; k += 4) {
    const float4 a0 = *reinterpret_cast<const float4*>(a_lane + k);
    const float4 a1 = *reinterpret_cast<const float4*>(a_lane + 8 * kStride + k);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float4 b0 = *reinterpret_cast<const float4*>(b_lane + n * 8 * kStride + k);
      const float4 b1 = *reinterpret_cast<const float4*>(b_lane + (n * 8 + 1) * kStride + k);
      c[n][0] = dot(a0, b0, c[n][0]);
      c[n][1] = dot(a0, b1, c[n][1]);
      c[n][2] = dot(a1, b0, c[n][2]);
      c[n][3] = dot(a1, b1, c[n][3]);
    }
  }
}

// c += P B: P the numbers of a product, 16 kM rows and 8 kDepth columns, B as many rows of a tile,
// of which `columns` count; other columns of c may become anything. The tensor cores get P rounded
// to bf16.
template <int kM, int kTiles, int kDepth>
__device__ inline void add_product(float (&c)[kM][kTiles][4], const float (&p)[kM][kDepth][4],
                                   const BFloat16* b, int columns) {
  static_assert(kDepth % 2 == 0 && kTiles % 2 == 0);
  constexpr int kStride = tile_stride<BFloat16>(kTiles * 8);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BFloat16* const b_lane = b + lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kDepth; k += 2) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const two = &p[m][k + i / 2][i % 2 * 2];
        left[m][i] = pair_of(two[0], two[1]);
      }
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      if (kTiles > 16 && n * 8 >= columns) break;
      uint32_t right[4];
      load_transposed(right, b_lane + k * 8 * kStride + n * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c[m][n], left[m], right[0], right[1]);
        multiply(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

template <int kTiles, int kDepth>
__device__ inline void add_product(float (&result)[1][kTiles][4],
                                   const float (&weights)[1][kDepth][4], const float* b,
                                   int columns) {
  constexpr int kStride = tile_stride<float>(kTiles * 8);
  auto& c = result[0];
  const auto& p = weights[0];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const b_lane = b + lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
#pragma unroll 1
    for (int j = 0; j < 8; ++j) {
      const int owner = lane / 4 * 4 + j / 2;
      const float p0 = __shfl_sync(kAllLanes, j % 2 == 0 ? p[k][0] : p[k][1], owner);
      const float p1 = __shfl_sync(kAllLanes, j % 2 == 0 ? p[k][2] : p[k][3], owner);
      const float* const row = b_lane + (k * 8 + j) * kStride;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (n * 8 >= columns) break;
        const float2 two = *reinterpret_cast<const float2*>(row + n * 8);
        c[n][0] = fmaf(p0, two.x, c[n][0]);
        c[n][1] = fmaf(p0, two.y, c[n][1]);
        c[n][2] = fmaf(p1, two.x, c[n][2]);
        c[n][3] = fmaf(p1, two.y, c[n][3]);
      }
    }
}

// Whether pairs of neighbouring elements can be stored at once. Uniform over a launch.
template <class T>
__device__ inline bool paired(const Rows<T>& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % (2 * sizeof(T)) == 0 &&
         ((rows.batch | rows.head | rows.row) & 1) == 0;
}

// Half `half` of 16 rows, of which a lane has part of one.
template <int kTiles>
__device__ inline void scale_half(float (&c)[kTiles][4], int half, float factor) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    c[n][half * 2] *= factor;
    c[n][half * 2 + 1] *= factor;
  }
}
template <class T, int kTiles>
__device__ inline void write_row(T* row, int64_t size, bool pairs, int half,
                                 const float (&c)[kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n * 8 >= size) break;  // sizes are multiples of 8
    T* const to = row + n * 8 + lane % 4 * 2;
    const float x = c[n][half * 2], y = c[n][half * 2 + 1];
    if (!pairs) {
      to[0] = from_float<T>(x);
      to[1] = from_float<T>(y);
    } else if constexpr (sizeof(T) == 2) {
      *reinterpret_cast<uint32_t*>(to) = pair_of(x, y);
    } else {
      *reinterpret_cast<float2*>(to) = make_float2(x, y);
    }
  }
}

// Over the four lanes that share a row.
__device__ inline float sum_quad(float value) { return sum_lanes<4>(value); }
__device__ inline float max_quad(float value) { return max_lanes<4>(value); }

}  // namespace tempera::kernels::cuda
