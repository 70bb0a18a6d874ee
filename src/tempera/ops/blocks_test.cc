// Matrices of blocks as weights: the wiring between the file's types, the kernel and torch.
#include "tempera/ops/blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tempera/io/gguf_blocks.h"
#include "tempera/ops/fused.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"

namespace tempera::ops {
namespace {

constexpr io::GgmlType kBlockTypes[] = {
    io::GgmlType::kQ4_0, io::GgmlType::kQ4_1, io::GgmlType::kQ5_0, io::GgmlType::kQ5_1,
    io::GgmlType::kQ8_0, io::GgmlType::kQ4_K, io::GgmlType::kQ5_K, io::GgmlType::kQ6_K};

struct Matrix {
  std::shared_ptr<std::vector<std::byte>> bytes;
  at::Tensor unpacked;
  WeightBlocks blocks;
};

Matrix matrix_of(io::GgmlType type, int64_t rows, int64_t columns) {
  const at::Tensor values = at::randn({rows, columns});
  const int64_t shape[] = {rows, columns};
  auto bytes = std::make_shared<std::vector<std::byte>>(io::ggml_bytes(type, shape, "t"));
  io::quantize(type, {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())}, *bytes);
  const io::GgufTensor view{.name = "t", .type = type, .shape = {rows, columns}, .bytes = *bytes};
  const at::Tensor unpacked = at::empty({rows, columns});
  io::dequantize_rows(
      view, 0, rows,
      std::span(unpacked.mutable_data_ptr<float>(), static_cast<size_t>(unpacked.numel())));
  return {bytes, unpacked, {.type = type, .rows = rows, .bytes = *bytes}};
}

// The root of the mean square error over that of what is wanted. Rows in 8 bits cost under 1 %.
double block_error(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found.to(at::kDouble) - wanted.to(at::kDouble)).norm() / wanted.to(at::kDouble).norm())
      .item<double>();
}

class BlockTensors : public testing::TestWithParam<io::GgmlType> {
 protected:
  void SetUp() override { torch::manual_seed(6); }
};

TEST_P(BlockTensors, ProductsAreThoseOfTheUnpackedMatrix) {
  const at::NoGradGuard no_grad;
  const Matrix matrix = matrix_of(GetParam(), 37, 512);
  const at::Tensor weight = block_tensor({matrix.blocks}, 512, matrix.bytes);
  EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{37, 512}));
  const at::Tensor bias = at::randn({37});
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{512}, {2, 3, 512}, {0, 512}, {70, 512}}) {
      const at::Tensor x = at::randn(sizes).to(type);
      const at::Tensor y = ops::linear(x, weight, bias);
      EXPECT_EQ(y.scalar_type(), type);
      const at::Tensor wanted = at::linear(x.to(at::kFloat), matrix.unpacked, bias);
      ASSERT_EQ(y.sizes(), wanted.sizes());
      if (y.numel() == 0) continue;
      EXPECT_LT(block_error(y, wanted), 0.012);
    }
}

TEST_P(BlockTensors, RowsOfATableAreUnpackedToTheBit) {
  const Matrix matrix = matrix_of(GetParam(), 9, 256);
  const at::Tensor table = block_tensor({matrix.blocks}, 256, matrix.bytes);
  const at::Tensor ids = torch::tensor({{3, 8}, {0, 3}});
  EXPECT_TRUE(
      torch::equal(ops::embedding(table, ids, at::kFloat), at::embedding(matrix.unpacked, ids)));
  EXPECT_EQ(ops::embedding(table, ids, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_ANY_THROW(ops::embedding(table, torch::tensor({9}), at::kFloat));
  EXPECT_ANY_THROW(ops::embedding(table, torch::tensor({-1}), at::kFloat));
}

TEST_P(BlockTensors, PartsPutTheirRowsInPlace) {
  const at::NoGradGuard no_grad;
  Matrix first = matrix_of(GetParam(), 4, 256);
  const Matrix second = matrix_of(io::GgmlType::kQ8_0, 3, 256);
  first.blocks.place = {2, 0, 3, 1};
  const at::Tensor weight = block_tensor({first.blocks, second.blocks}, 256, nullptr);
  const at::Tensor unpacked =
      at::cat({first.unpacked.index_select(0, torch::tensor({1, 3, 0, 2})), second.unpacked});
  const at::Tensor x = at::randn({2, 256});
  EXPECT_LT(block_error(ops::linear(x, weight), at::linear(x, unpacked)), 0.012);
}

INSTANTIATE_TEST_SUITE_P(All, BlockTensors, testing::ValuesIn(kBlockTypes));

TEST(BlockTensor, KeepsItsOwnerAndRefusesOtherUses) {
  auto matrix = std::make_unique<Matrix>(matrix_of(io::GgmlType::kQ8_0, 4, 32));
  const std::weak_ptr<void> bytes = matrix->bytes;
  at::Tensor weight = block_tensor({matrix->blocks}, 32, matrix->bytes);
  matrix.reset();
  EXPECT_FALSE(bytes.expired());
  EXPECT_EQ(weight.detach().size(1), 32);
  EXPECT_NE(blocks_of(weight.detach()), nullptr);
  EXPECT_TRUE(weight.to(at::kCPU).is_same(weight));
  EXPECT_EQ(blocks_of(at::zeros({2, 2})), nullptr);
  EXPECT_EQ(blocks_of({}), nullptr);
  EXPECT_ANY_THROW(weight + 1);
  EXPECT_ANY_THROW(weight.clone());
  EXPECT_ANY_THROW(at::linear(at::zeros({2, 32}), weight));
  EXPECT_ANY_THROW(weight.to(at::kBFloat16));
  EXPECT_ANY_THROW(ops::linear(at::zeros({2, 31}), weight));
  EXPECT_ANY_THROW(ops::linear(at::zeros({2, 32}, at::kDouble), weight));
  EXPECT_ANY_THROW(ops::linear(at::zeros({2, 32}).requires_grad_(), weight));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3}, {5}, {1}, {}, {1, 4}})
    EXPECT_ANY_THROW(ops::linear(at::zeros({2, 32}), weight, at::zeros(sizes)));
  EXPECT_ANY_THROW(ops::linear(at::zeros({2, 32}), weight, at::zeros({4}, at::kMeta)));
  weight.reset();
  EXPECT_TRUE(bytes.expired());
}

TEST(BlockTensor, RefusesBytesThatDoNotFit) {
  const Matrix matrix = matrix_of(io::GgmlType::kQ8_0, 4, 32);
  EXPECT_ANY_THROW(block_tensor({matrix.blocks}, 64, matrix.bytes));
  EXPECT_ANY_THROW(block_tensor({matrix.blocks}, 33, matrix.bytes));
  WeightBlocks wrong = matrix.blocks;
  wrong.place = {0, 1, 2, 4};
  EXPECT_ANY_THROW(block_tensor({wrong}, 32, matrix.bytes));
  wrong.place = {0, 1, 2};
  EXPECT_ANY_THROW(block_tensor({wrong}, 32, matrix.bytes));
  wrong = matrix.blocks;
  wrong.type = io::GgmlType::kF32;
  EXPECT_ANY_THROW(block_tensor({wrong}, 32, matrix.bytes));
}

}  // namespace
}  // namespace tempera::ops
