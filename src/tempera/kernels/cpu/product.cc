#include "tempera/kernels/product.h"

#include <algorithm>

#include "tempera/kernels/cpu/tiles.h"

#ifndef TEMPERA_KERNELS_CPU_PRODUCT_BLOCKS_
#define TEMPERA_KERNELS_CPU_PRODUCT_BLOCKS_
namespace tempera::kernels::cpu {
namespace {

// What is worked on at once: a panel of B, 64 columns of the whole depth of a block, and some rows
// of A stay in the second-level cache of a core, all packed panels in the cache that cores share.
constexpr int64_t kMostDepth = 1024;
constexpr int64_t kChunkRows = int64_t{16} * kStripRows;
constexpr int64_t kGroupColumns = 16 * kPanel;

// A part of the depth; the parts are of about the same size.
struct DepthBlock {
  int64_t first, depth;
};

int64_t depth_blocks(int64_t depth) {
  return std::max<int64_t>(1, (depth + kMostDepth - 1) / kMostDepth);
}

DepthBlock depth_block(int64_t depth, int64_t block) {
  const int64_t share = (depth + depth_blocks(depth) - 1) / depth_blocks(depth);
  return {block * share, std::min(share, depth - block * share)};
}

}  // namespace
}  // namespace tempera::kernels::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/product.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/gemm-inl.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Columns [column, column + width) of B, rows [first, first + depth), side by side.
HWY_INLINE void pack_panel(const ProductParams& p, const DepthBlock& block, int64_t column,
                           int64_t width, float* to) {
  const float* from = p.b + block.first * p.b_depth + column * p.b_column;
  if (p.b_column != 1) {
    // A line of the panel is written in several visits, between which it should stay near.
    for (int64_t k = 0; k < block.depth; k += kPanel)
      transpose_panels(from + k, p.b_column, width, std::min(kPanel, block.depth - k),
                       to + k * kPanel);
    return;
  }
  for (int64_t k = 0; k < block.depth; ++k)
    for (int64_t c = 0; c < width; c += kLanes)
      store(load_some(from + k * p.b_depth + c, width - c), to + k * kPanel + c);
}

// A strip of up to six rows times columns [0, width) of a panel.
HWY_INLINE void multiply_strip(int rows, const Product& p, int64_t depth, int64_t width,
                               bool accumulate) {
  constexpr int64_t kStep = kMaxVectors * kLanes;
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t c = 0; c < whole; c += kStep)
    dispatch(rows, static_cast<int>(std::min(kStep, whole - c) / kLanes),
             {p.a, p.a_row, p.a_depth, p.b + c, p.b_row, p.c + c, p.c_row}, depth, accumulate);
  if (whole == width) return;
  float tile[kStripRows * kLanes];
  for (int r = 0; accumulate && r < rows; ++r)
    store(load_some(p.c + r * p.c_row + whole, width - whole), tile + r * kLanes);
  dispatch(rows, 1, {p.a, p.a_row, p.a_depth, p.b + whole, p.b_row, tile, kLanes}, depth,
           accumulate);
  for (int r = 0; r < rows; ++r)
    store_some(load(tile + r * kLanes), p.c + r * p.c_row + whole, width - whole);
}

void multiply_block(const ProductParams& p, const DepthBlock& block, int64_t first_column,
                    int64_t columns, Parallel& parallel, float* packed) {
  const int64_t panels = (columns + kPanel - 1) / kPanel;
  const auto width = [&](int64_t panel) { return std::min(kPanel, columns - panel * kPanel); };
  parallel.run(panels, [&](int64_t panel, int) {
    pack_panel(p, block, first_column + panel * kPanel, width(panel),
               packed + panel * kPanel * block.depth);
  });
  const int64_t chunks = (p.rows + kChunkRows - 1) / kChunkRows;
  parallel.run(chunks * panels, [&](int64_t task, int) {
    const int64_t panel = task % panels, begin = task / panels * kChunkRows;
    const int64_t end = std::min(p.rows, begin + kChunkRows);
    for (int64_t row = begin; row < end;) {
      const int rows = strip_height(end - row);
      multiply_strip(rows,
                     {p.a + row * p.a_row + block.first * p.a_depth, p.a_row, p.a_depth,
                      packed + panel * kPanel * block.depth, kPanel,
                      p.c + row * p.c_row + first_column + panel * kPanel, p.c_row},
                     block.depth, width(panel), /*accumulate=*/p.add || block.first > 0);
      row += rows;
    }
  });
}

void multiply(const ProductParams& p, Parallel& parallel, float* workspace) {
  for (int64_t block = 0; block < depth_blocks(p.depth); ++block)
    for (int64_t column = 0; column < p.columns; column += kGroupColumns)
      multiply_block(p, depth_block(p.depth, block), column,
                     std::min(kGroupColumns, p.columns - column), parallel, workspace);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(multiply);
}  // namespace cpu

bool has_fast_product() {
#if defined(__x86_64__)
  static const bool fast = cpu::selected_isa() == "avx512" && !__builtin_cpu_is("intel");
  return fast;
#else
  return false;
#endif
}

int64_t product_workspace(const ProductParams& params) {
  const int64_t columns = cpu::round_up(std::min(params.columns, cpu::kGroupColumns), cpu::kPanel);
  return columns * cpu::depth_block(params.depth, 0).depth;
}

void product(const ProductParams& params, Parallel& parallel, float* workspace) {
  cpu::select_isa();
  HWY_DYNAMIC_DISPATCH(cpu::multiply)(params, parallel, workspace);
}

}  // namespace tempera::kernels
#endif  // HWY_ONCE
