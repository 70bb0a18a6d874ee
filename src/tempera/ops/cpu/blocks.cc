#include "tempera/kernels/blocks.h"

#include "tempera/io/gguf_blocks.h"
#include "tempera/ops/autograd.h"
#include "tempera/ops/blocks.h"
#include "tempera/ops/cpu/blocks.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

using at::Tensor;
using kernels::BlockType;

BlockType block_type(io::GgmlType type) {
  switch (type) {
    case io::GgmlType::kQ4_0:
      return BlockType::kQ4_0;
    case io::GgmlType::kQ4_1:
      return BlockType::kQ4_1;
    case io::GgmlType::kQ5_0:
      return BlockType::kQ5_0;
    case io::GgmlType::kQ5_1:
      return BlockType::kQ5_1;
    case io::GgmlType::kQ8_0:
      return BlockType::kQ8_0;
    case io::GgmlType::kQ4_K:
      return BlockType::kQ4_K;
    case io::GgmlType::kQ5_K:
      return BlockType::kQ5_K;
    default:
      return BlockType::kQ6_K;
  }
}

// Rows of x that are multiplied at once: their 8-bit form is scratch memory.
constexpr int64_t kMostRows = 2048;

std::vector<kernels::BlockRows> views_of(const std::vector<WeightBlocks>& parts) {
  std::vector<kernels::BlockRows> views;
  for (const WeightBlocks& part : parts)
    views.push_back({block_type(part.type), part.rows,
                     reinterpret_cast<const uint8_t*>(part.bytes.data()),
                     part.place.empty() ? nullptr : part.place.data()});
  return views;
}

}  // namespace

Tensor linear_of_blocks(const Tensor& any, const std::vector<WeightBlocks>& parts,
                        at::IntArrayRef sizes, const Tensor& any_bias) {
  TORCH_CHECK(
      any.is_cpu() && (any.scalar_type() == at::kFloat || any.scalar_type() == at::kBFloat16),
      "rows of ", any.scalar_type(), " on ", any.device(),
      " times a matrix of blocks; float32 or bfloat16 on the CPU expected");
  TORCH_CHECK(!wants_gradient({any, any_bias}),
              "a matrix of blocks is for inference; load the model unpacked to learn");
  const int64_t outputs = sizes[0], inputs = sizes[1];
  TORCH_CHECK(any.dim() >= 1 && any.size(-1) == inputs, "rows of ", any.sizes(), " times a matrix ",
              sizes);
  TORCH_CHECK(!any_bias.defined() ||
                  (any_bias.is_cpu() && any_bias.dim() == 1 && any_bias.size(0) == outputs),
              "a bias ", any_bias.sizes(), " on ", any_bias.device(), " for a matrix ", sizes, "; ",
              outputs, " numbers on the CPU expected");
  const Tensor x = any.contiguous(), bias = as_float(any_bias);
  at::DimVector y_sizes(x.sizes());
  y_sizes.back() = outputs;
  const Tensor y = at::empty(y_sizes, x.options());
  const auto views = views_of(parts);
  const int64_t rows = y.numel() / std::max<int64_t>(outputs, 1);
  AtenParallel parallel;
  const Tensor workspace = at::empty(
      kernels::block_product_workspace(std::min(rows, kMostRows), inputs, parallel.workers()),
      at::kByte);
  for_storage(x, [&](auto* type) {
    using X = std::remove_pointer_t<decltype(type)>;
    for (int64_t first = 0; first < rows; first += kMostRows)
      kernels::block_product<X>({std::min(kMostRows, rows - first), inputs, views,
                                 static_cast<const X*>(x.const_data_ptr()) + first * inputs, inputs,
                                 bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                 static_cast<X*>(y.mutable_data_ptr()) + first * outputs, outputs},
                                parallel, static_cast<std::byte*>(workspace.mutable_data_ptr()));
  });
  return y;
}

namespace {

Tensor embedding_of_blocks(const std::vector<WeightBlocks>& parts, at::IntArrayRef sizes,
                           const Tensor& ids, at::ScalarType type) {
  TORCH_CHECK(parts.size() == 1 && parts[0].place.empty(),
              "a table of blocks has rows of one type in their order");
  const int64_t rows = sizes[0], columns = sizes[1];
  const Tensor index = ids.contiguous();
  at::DimVector y_sizes(ids.sizes());
  y_sizes.push_back(columns);
  const Tensor y = at::empty(y_sizes, at::kFloat);
  const io::GgufTensor table{
      .type = parts[0].type, .shape = {rows, columns}, .bytes = parts[0].bytes};
  const auto* id = index.const_data_ptr<int64_t>();
  auto* out = y.mutable_data_ptr<float>();
  for (int64_t i = 0; i < index.numel(); ++i) {
    TORCH_CHECK(id[i] >= 0 && id[i] < rows, "index ", id[i], " given; the table has ", rows,
                " rows");
    io::dequantize_rows(table, id[i], id[i] + 1,
                        std::span(out + i * columns, static_cast<size_t>(columns)));
  }
  return y.to(type);
}

}  // namespace

Tensor Cpu::embedding(const Tensor& table, const Tensor& ids, at::ScalarType type) const {
  if (const auto* blocks = blocks_of(table))
    return embedding_of_blocks(*blocks, table.sizes(), ids, type);
  return Composed::embedding(table, ids, type);
}

}  // namespace tempera::ops
