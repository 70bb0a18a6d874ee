#include "tempera/kernels/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tempera/kernels/cpu/blocks_rows.h"

#ifndef TEMPERA_KERNELS_CPU_BLOCKS_PANEL_
#define TEMPERA_KERNELS_CPU_BLOCKS_PANEL_
namespace tempera::kernels::cpu {
namespace {

// A panel of sixteen rows of the matrix: numbers, two scales and a minimum for each group.
constexpr int64_t kPanelBytesOfAGroup = 16 * (kGroup + int64_t{3} * 4);

// Of the two panels that a worker has.
constexpr int64_t panel_bytes(int64_t inputs) {
  return 2 * (inputs / kGroup * kPanelBytesOfAGroup);
}

// Bytes of the matrix in a task: they stay in the cache of a core while further rows use them, and
// a worker which is held up does not hold up all.
constexpr int64_t kTaskBytes = 32 << 10;

}  // namespace
}  // namespace tempera::kernels::cpu
#endif

// The processors of today with AVX-512 multiply bytes; others are served as well by AVX2.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#endif
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/blocks.cc"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/isa.h"
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#include "tempera/kernels/cpu/blocks_plain-inl.h"
#else
#include "tempera/kernels/cpu/blocks_product-inl.h"
#endif
#include "tempera/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// A group of 32 elements. One with an element that is no finite number makes all results of its row
// NaN.
template <class X>
HWY_INLINE void quantize_group(const X* from, QuantizedGroup& to) {
  constexpr int64_t kVectors = kGroup / kLanes;
  const auto magnitude = hn::Set(U32(), 0x7fffffffU);
  Vec x[kVectors];
  auto most = hn::Zero(U32());
  for (int64_t i = 0; i < kVectors; ++i) {
    x[i] = load(from + i * kLanes);
    most = hn::Max(most, hn::And(hn::BitCast(U32(), x[i]), magnitude));
  }
  const auto largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(U32(), most)));
  const bool finite = largest <= std::numeric_limits<float>::max();
  const Vec inverse = set(finite && largest > 1e-30F ? 127 / largest : 0);
  // Adding 1.5 * 2^23 rounds to a whole number, ties to even.
  const Vec magic = set(12582912.0F);
  auto sum = hn::Zero(I32());
  for (int64_t i = 0; i < kVectors; ++i) {
    if (!finite) x[i] = hn::Zero(F32());
    const Vec shifted = hn::MulAdd(x[i], inverse, magic);
    const auto q = hn::Sub(hn::BitCast(I32(), shifted), hn::BitCast(I32(), magic));
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, I32>(), q), hn::Rebind<int8_t, I32>(),
               to.q + i * kLanes);
    sum = hn::Add(sum, q);
    if ((i + 1) * 2 % kVectors != 0) continue;
    to.half_sum[i * 2 / kVectors] = hn::GetLane(hn::SumOfLanes(I32(), sum));
    sum = hn::Zero(I32());
  }
  to.scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
  to.sum = to.half_sum[0] + to.half_sum[1];
  to.scaled_sum = to.scale * static_cast<float>(to.sum);
}

// What the tasks share: rows [first, first + count) of x, quantised, times one part.
struct PartProduct {
  int64_t row_count, inputs;
  BlockRows part;
  int64_t first_output;  // of the part
  std::byte* rows;
  std::byte* panel;   // of this worker
  const float* bias;  // absent: 0
  float* y;           // either of the two
  BFloat16* y_bfloat16;
  int64_t y_stride;

  QuantizedRow row(int64_t r) const {
    return quantized_row(rows + r * quantized_row_bytes(inputs));
  }
  // The results of rows of the matrix that begin at `output`, for one row of x.
  void put(int64_t r, int64_t output, const float* results, int64_t count) const {
    if (y && !bias) {
      float* const to = y + r * y_stride + first_output;
      if (!part.place) {
        std::copy_n(results, count, to + output);
      } else {
        for (int64_t i = 0; i < count; ++i) to[part.place[output + i]] = results[i];
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = first_output + (part.place ? part.place[output + i] : output + i);
      const float result = results[i] + (bias ? bias[at] : 0.0F);
      if (y)
        y[r * y_stride + at] = result;
      else
        from_float(result, y_bfloat16 + r * y_stride + at);
    }
  }
};

template <class Type, int kRows>
void few_rows(const PartProduct& p, int64_t first, int64_t count, int64_t begin, int64_t end) {
  if constexpr (kRows > 1) {
    if (count < kRows) return few_rows<Type, kRows - 1>(p, first, count, begin, end);
  }
  const int64_t blocks = p.inputs / Type::kElements;
  QuantizedRow x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = p.row(first + r);
  for (int64_t output = begin; output < end; output += kOutputs) {
    float results[kRows * kOutputs];
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    multiply_one<Type, kRows>(p.part.bytes + output * blocks * Type::kBytes, blocks, x, results);
#else
    const FourRows four(p.part.bytes, blocks * Type::kBytes, output, end);
    multiply_four<Type, kRows>(four.first, blocks, x, results);
#endif
    for (int r = 0; r < kRows; ++r)
      p.put(first + r, output, results + r * kOutputs, std::min(kOutputs, end - output));
  }
}

#if HWY_TARGET == HWY_AVX3_DL

// From so many rows on, a panel pays.
inline constexpr int64_t kLeastPanelRows = 3;

template <class Type, int kRows, int panels>
void panel_rows(const PartProduct& p, const BlockPanel* panel, int64_t first, int64_t count,
                int64_t output, int64_t outputs) {
  if constexpr (kRows > 1) {
    if (count < kRows)
      return panel_rows<Type, kRows - 1, panels>(p, panel, first, count, output, outputs);
  }
  QuantizedRow x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = p.row(first + r);
  float results[kRows * panels * kPanelOutputs];
  multiply_panels<Type, kRows, panels>(panel, p.inputs / Type::kGroupElements, x, results);
  for (int r = 0; r < kRows; ++r)
    p.put(first + r, output, results + r * panels * kPanelOutputs, outputs);
}

template <class Type, int panels>
void many_rows(const PartProduct& p, int64_t output, int64_t end) {
  const int64_t inputs = p.inputs;
  BlockPanel panel[panels];
  for (int i = 0; i < panels; ++i) {
    auto* const numbers =
        reinterpret_cast<uint8_t*>(p.panel + i * (inputs / kGroup * kPanelBytesOfAGroup));
    auto* const scale = reinterpret_cast<float*>(numbers + inputs * kPanelOutputs);
    panel[i] = {numbers, scale, scale + inputs / 16 * kPanelOutputs};
    fill_panel<Type>(p.part.bytes, inputs / Type::kElements, output + i * kPanelOutputs, end,
                     panel[i]);
  }
  for (int64_t first = 0; first < p.row_count; first += kPanelRows)
    panel_rows<Type, kPanelRows, panels>(p, panel, first, p.row_count - first, output,
                                         std::min(panels * kPanelOutputs, end - output));
}

template <class Type>
void many_rows(const PartProduct& p, int64_t begin, int64_t end) {
  int64_t output = begin;
  for (; output + kPanelOutputs < end; output += kPanels * kPanelOutputs)
    many_rows<Type, kPanels>(p, output, end);
  if (output < end) many_rows<Type, 1>(p, output, end);
}

#endif

#if HWY_TARGET == HWY_AVX3_DL

template <class Type>
void one_row(const PartProduct& p, int64_t begin, int64_t end) {
  const int64_t blocks = p.inputs / Type::kElements;
  for (int64_t output = begin; output < end; output += kWideOutputs) {
    const uint8_t* first[kWideOutputs];
    for (int64_t o = 0; o < kWideOutputs; ++o)
      first[o] = p.part.bytes + std::min(output + o, end - 1) * blocks * Type::kBytes;
    float results[kWideOutputs];
    multiply_eight<Type>(first, blocks, p.row(0), results);
    p.put(0, output, results, std::min(kWideOutputs, end - output));
  }
}

#endif

template <class Type>
void multiply_outputs(const PartProduct& p, int64_t begin, int64_t end) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (Type::kElements == kGroup)
    if (p.row_count == 1) return one_row<Type>(p, begin, end);
  if (p.row_count >= kLeastPanelRows) return many_rows<Type>(p, begin, end);
#endif
  for (int64_t first = 0; first < p.row_count; first += kTileRows)
    few_rows<Type, kTileRows>(p, first, p.row_count - first, begin, end);
}

void multiply_part(const PartProduct& p, int64_t begin, int64_t end) {
  switch (p.part.type) {
    case BlockType::kQ4_0:
      return multiply_outputs<Blocks<BlockType::kQ4_0>>(p, begin, end);
    case BlockType::kQ4_1:
      return multiply_outputs<Blocks<BlockType::kQ4_1>>(p, begin, end);
    case BlockType::kQ5_0:
      return multiply_outputs<Blocks<BlockType::kQ5_0>>(p, begin, end);
    case BlockType::kQ5_1:
      return multiply_outputs<Blocks<BlockType::kQ5_1>>(p, begin, end);
    case BlockType::kQ8_0:
      return multiply_outputs<Blocks<BlockType::kQ8_0>>(p, begin, end);
    case BlockType::kQ4_K:
      return multiply_outputs<Blocks<BlockType::kQ4_K>>(p, begin, end);
    case BlockType::kQ5_K:
      return multiply_outputs<Blocks<BlockType::kQ5_K>>(p, begin, end);
    case BlockType::kQ6_K:
      return multiply_outputs<Blocks<BlockType::kQ6_K>>(p, begin, end);
  }
}

template <class X>
void quantize_rows(const BlockProductParams<X>& p, Parallel& parallel, std::byte* rows) {
  const auto quantize = [&](int64_t r, int) {
    const QuantizedRow to = quantized_row(rows + r * quantized_row_bytes(p.inputs));
    for (int64_t group = 0; group < p.inputs / kGroup; ++group)
      quantize_group(p.x + r * p.x_stride + group * kGroup, to.groups[group]);
  };
  if (p.rows > kTileRows) return parallel.run(p.rows, quantize);
  for (int64_t r = 0; r < p.rows; ++r) quantize(r, 0);
}

void set_results(float* y, PartProduct& product) { product.y = y; }
void set_results(BFloat16* y, PartProduct& product) { product.y_bfloat16 = y; }

template <class X>
void multiply(const BlockProductParams<X>& p, Parallel& parallel, std::byte* workspace) {
  quantize_rows(p, parallel, workspace);
  std::byte* const panels = workspace + p.rows * quantized_row_bytes(p.inputs);
  // With many rows a task is long, and workers wait for the last one.
  const bool many = p.rows > kTileRows;
  const int64_t least = many ? 32 : 16;
  const auto share_of = [&](const BlockRows& part) {
    const BlockLayout layout = block_layout(part.type);
    const int64_t row_bytes = std::max<int64_t>(p.inputs / layout.elements * layout.bytes, 1);
    const int64_t task_bytes = many ? kTaskBytes / 2 : kTaskBytes;
    return std::max(task_bytes / row_bytes / least * least, least);
  };
  int64_t tasks = 0;
  for (const BlockRows& part : p.parts) tasks += (part.rows + share_of(part) - 1) / share_of(part);
  parallel.run(tasks, [&](int64_t task, int worker) {
    int64_t first_output = 0;
    for (const BlockRows& part : p.parts) {
      const int64_t share = share_of(part), here = (part.rows + share - 1) / share;
      if (task < here) {
        std::byte* const panel = panels + worker * panel_bytes(p.inputs);
        PartProduct product{p.rows, p.inputs, part,    first_output, workspace,
                            panel,  p.bias,   nullptr, nullptr,      p.y_stride};
        set_results(p.y, product);
        return multiply_part(product, task * share, std::min(part.rows, (task + 1) * share));
      }
      task -= here;
      first_output += part.rows;
    }
  });
}

// As Highway's dispatch wants them: plain functions.
void block_product_f(const BlockProductParams<float>& p, Parallel& parallel, std::byte* workspace) {
  multiply(p, parallel, workspace);
}
void block_product_b(const BlockProductParams<BFloat16>& p, Parallel& parallel,
                     std::byte* workspace) {
  multiply(p, parallel, workspace);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(block_product_f);
HWY_EXPORT(block_product_b);
}  // namespace cpu

BlockLayout block_layout(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0:
      return {32, 18};
    case BlockType::kQ4_1:
      return {32, 20};
    case BlockType::kQ5_0:
      return {32, 22};
    case BlockType::kQ5_1:
      return {32, 24};
    case BlockType::kQ8_0:
      return {32, 34};
    case BlockType::kQ4_K:
      return {256, 144};
    case BlockType::kQ5_K:
      return {256, 176};
    case BlockType::kQ6_K:
      break;
  }
  return {256, 210};
}

int64_t block_product_workspace(int64_t rows, int64_t inputs, int workers) {
  return rows * cpu::quantized_row_bytes(inputs) + workers * cpu::panel_bytes(inputs);
}

template <>
void block_product(const BlockProductParams<float>& params, Parallel& parallel,
                   std::byte* workspace) {
  cpu::select_isa();
  HWY_DYNAMIC_DISPATCH(cpu::block_product_f)(params, parallel, workspace);
}

template <>
void block_product(const BlockProductParams<BFloat16>& params, Parallel& parallel,
                   std::byte* workspace) {
  cpu::select_isa();
  HWY_DYNAMIC_DISPATCH(cpu::block_product_b)(params, parallel, workspace);
}

}  // namespace tempera::kernels
#endif  // HWY_ONCE
