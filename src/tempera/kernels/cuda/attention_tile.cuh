#pragma once

#include "tempera/kernels/cuda/device.cuh"

// Tiles of rows in shared memory and their products. A warp has 16 rows of a product; its numbers
// lie as the tensor cores leave them: c[n][e] of a lane is row lane / 4 (+ 8 for e >= 2), column 8
// n + 2 (lane % 4) + e % 2.
namespace tempera::kernels::cuda {

constexpr int kTileRows = 16;  // of a warp

// Elements from one row of a tile to the next: 16 bytes more than the row, against bank conflicts.
template <class T>
constexpr int tile_stride(int columns) {
  return columns + 16 / static_cast<int>(sizeof(T));
}

// Copies rows [first, first + rows) into a tile; those outside of [begin, end) and columns from
// `size` to `columns` become 0. row(r) is where row r begins. All threads call it; finished by
// tile_wait and a barrier.
template <int kColumns, class T, class Row>
__device__ inline void copy_tile(T* tile, int rows, int columns, int first, int begin, int end,
                                 int size, bool whole, Row row) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));  // of one copy
  constexpr int kPacks = kColumns / kElements;                 // a power of 2
  const int column = static_cast<int>(threadIdx.x) % kPacks * kElements;
  if (column < columns)
    for (int r = static_cast<int>(threadIdx.x) / kPacks; r < rows;
         r += static_cast<int>(blockDim.x) / kPacks) {
      T* const to = tile + r * tile_stride<T>(kColumns) + column;
      const bool inside = first + r >= begin && first + r < end && column < size;
      const T* const from = inside ? row(first + r) + column : nullptr;
      if (inside && whole) {
        const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
      } else {
#pragma unroll
        for (int i = 0; i < kElements; ++i) to[i] = inside ? from[i] : T{};
      }
    }
  asm volatile("cp.async.commit_group;");
}

// Waits until at most kLeft of this thread's copies are under way.
template <int kLeft>
__device__ inline void tile_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
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

// c = A B^T: A 16 rows of a tile, B 8 kTiles rows of one, both with `depth` columns, a multiple
// of 16.
template <int kTiles>
__device__ inline void product_rows(float (&c)[kTiles][4], const BFloat16* a, int a_stride,
                                    const BFloat16* b, int b_stride, int depth) {
  static_assert(kTiles % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BFloat16* const a_lane = a + lane % 16 * a_stride + lane / 16 * 8;
  const BFloat16* const b_lane = b + (lane % 8 + lane / 16 * 8) * b_stride + lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = 0;
#pragma unroll 4
  for (int k = 0; k < depth; k += 16) {
    uint32_t left[4];
    load_matrices(left, a_lane + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t right[4];
      load_matrices(right, b_lane + n * 8 * b_stride + k);
      multiply(c[n], left, right[0], right[1]);
      multiply(c[n + 1], left, right[2], right[3]);
    }
  }
}

template <int kTiles>
__device__ inline void product_rows(float (&c)[kTiles][4], const float* a, int a_stride,
                                    const float* b, int b_stride, int depth) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const a_lane = a + lane / 4 * a_stride;
  const float* const b_lane = b + lane % 4 * 2 * b_stride;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = 0;
  const auto dot = [](float4 x, float4 y, float sum) {
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
  };
  for (int k = 0; k < depth; k += 4) {
    const float4 a0 = *reinterpret_cast<const float4*>(a_lane + k);
    const float4 a1 = *reinterpret_cast<const float4*>(a_lane + 8 * a_stride + k);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float4 b0 = *reinterpret_cast<const float4*>(b_lane + n * 8 * b_stride + k);
      const float4 b1 = *reinterpret_cast<const float4*>(b_lane + (n * 8 + 1) * b_stride + k);
      c[n][0] = dot(a0, b0, c[n][0]);
      c[n][1] = dot(a0, b1, c[n][1]);
      c[n][2] = dot(a1, b0, c[n][2]);
      c[n][3] = dot(a1, b1, c[n][3]);
    }
  }
}

// c += P B: P the numbers of a product, 16 rows and 8 kDepth columns, B as many rows of a tile, of
// which `columns` count. The tensor cores get P as a sum of two bf16 numbers, which holds 16 bits
// of it: gradients are differences of numbers much larger than themselves, and 8 bits are too few.
template <int kTiles, int kDepth>
__device__ inline void add_product(float (&c)[kTiles][4], const float (&p)[kDepth][4],
                                   const BFloat16* b, int b_stride, int columns) {
  static_assert(kDepth % 2 == 0 && kTiles % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BFloat16* const b_lane = b + lane % 16 * b_stride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kDepth; k += 2) {
    const uint32_t left[4] = {pair_of(p[k][0], p[k][1]), pair_of(p[k][2], p[k][3]),
                              pair_of(p[k + 1][0], p[k + 1][1]), pair_of(p[k + 1][2], p[k + 1][3])};
    uint32_t rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const two = &p[k + i / 2][i % 2 * 2];
      rest[i] = pair_of(two[0] - __uint_as_float(left[i] << 16),
                        two[1] - __uint_as_float(left[i] & 0xFFFF0000U));
    }
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      if (n * 8 >= columns) break;
      uint32_t right[4];
      load_transposed(right, b_lane + k * 8 * b_stride + n * 8);
      multiply(c[n], left, right[0], right[1]);
      multiply(c[n + 1], left, right[2], right[3]);
      multiply(c[n], rest, right[0], right[1]);
      multiply(c[n + 1], rest, right[2], right[3]);
    }
  }
}

template <int kTiles, int kDepth>
__device__ inline void add_product(float (&c)[kTiles][4], const float (&p)[kDepth][4],
                                   const float* b, int b_stride, int columns) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const b_lane = b + lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
#pragma unroll 1
    for (int j = 0; j < 8; ++j) {
      const int owner = lane / 4 * 4 + j / 2;
      const float p0 = __shfl_sync(kAllLanes, j % 2 == 0 ? p[k][0] : p[k][1], owner);
      const float p1 = __shfl_sync(kAllLanes, j % 2 == 0 ? p[k][2] : p[k][3], owner);
      const float* const row = b_lane + (k * 8 + j) * b_stride;
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

// Over the four lanes that share a row.
__device__ inline float sum_quad(float value) { return sum_lanes<4>(value); }
__device__ inline float max_quad(float value) { return max_lanes<4>(value); }

}  // namespace tempera::kernels::cuda
