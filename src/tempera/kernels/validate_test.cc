#include "tempera/kernels/validate.h"

#include <gtest/gtest.h>

#include <limits>

#include "tempera/base/error.h"
#include "tempera/kernels/reference/problem.h"

namespace tempera::kernels {
namespace {

Case everything() {
  for (const Case& c : attention_cases())
    if (c.name == "everything") return c;
  throw Error("there is no case 'everything'");
}

Case decoding() {
  for (const Case& c : decode_cases())
    if (c.name == "decode_2_paged_16_everything") return c;
  throw Error("there is no case 'decode_2_paged_16_everything'");
}

struct Call {
  AttentionParams<float> params;
  AttentionOutputs<float> outputs;
  AttentionGradients<float> gradients;
  DecodeParams<float> decode;
};

// The message that a changed call gives, "" if it passes.
template <class Change>
std::string complaint_of(Change change) {
  Problem<float> problem(everything(), Precision::kFloat);
  Call call{problem.params(), problem.outputs(), problem.gradients(), {}};
  change(call);
  try {
    validate(call.params, call.outputs);
    validate(call.params, call.gradients);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class Change>
std::string decode_complaint_of(Change change) {
  Problem<float> problem(decoding(), Precision::kFloat);
  Call call{{}, problem.outputs(), {}, problem.decode_params()};
  change(call);
  try {
    validate(call.decode, call.outputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class Change>
void expect_says(const std::string& text, Change change) {
  const std::string message = complaint_of(change);
  EXPECT_NE(message.find(text), std::string::npos) << "'" << text << "' not in '" << message << "'";
}

template <class Change>
void expect_decode_says(const std::string& text, Change change) {
  const std::string message = decode_complaint_of(change);
  EXPECT_NE(message.find(text), std::string::npos) << "'" << text << "' not in '" << message << "'";
}

TEST(Validate, EveryCasePasses) {
  for (const Case& c : attention_cases()) {
    Problem<BFloat16> problem(c, Precision::kBFloat16);
    EXPECT_NO_THROW(validate(problem.params(), problem.outputs())) << c.name;
    EXPECT_NO_THROW(validate(problem.params(), problem.gradients())) << c.name;
  }
  for (const Case& c : decode_cases()) {
    Problem<double> problem(c, Precision::kDouble);
    EXPECT_NO_THROW(validate(problem.decode_params(), problem.outputs())) << c.name;
  }
}

TEST(Validate, Shapes) {
  EXPECT_EQ(complaint_of([](Call&) {}), "");
  expect_says("negative shape: batch -1", [](Call& c) { c.params.shape.batch = -1; });
  expect_says("query rows -2", [](Call& c) { c.params.shape.q_rows = -2; });
  expect_says("a multiple of the 2 key heads",
              [](Call& c) { c.params.shape.kv_heads = 2, c.params.shape.q_heads = 3; });
  expect_says("at least 1 expected", [](Call& c) { c.params.shape.kv_heads = 0; });
  expect_says("query and key row: 12 given, a multiple of 8",
              [](Call& c) { c.params.shape.qk_size = 12; });
  expect_says("value row: 264 given", [](Call& c) { c.params.shape.v_size = 264; });
  Case odd;
  odd.shape = {1, 1, 1, 2, 2, 3, 5};
  Problem<double> any(odd, Precision::kDouble);
  EXPECT_NO_THROW(validate(any.params(), any.outputs()));
}

TEST(Validate, Settings) {
  expect_says("window: -1 given", [](Call& c) { c.params.mask.window = -1; });
  expect_says("dropout: 1 given", [](Call& c) { c.params.dropout = 1; });
  expect_says("dropout: -0.5 given", [](Call& c) { c.params.dropout = -0.5F; });
  expect_says("dropout: nan",
              [](Call& c) { c.params.dropout = std::numeric_limits<float>::quiet_NaN(); });
  expect_says("logit cap: -1 given", [](Call& c) { c.params.cap = -1; });
  expect_says("logit cap: nan",
              [](Call& c) { c.params.cap = std::numeric_limits<float>::quiet_NaN(); });
  std::vector<int32_t> ranges(2 * 33, 33);
  const auto bad_end = [&](int32_t value) {
    ranges[40] = value;
    return complaint_of([&](Call& c) { c.params.mask.key_end = ranges.data(); });
  };
  EXPECT_EQ(bad_end(33), "");
  EXPECT_NE(bad_end(34).find("key_end of sequence 1, row 7: 34 given, 0 to 33"), std::string::npos);
  EXPECT_NE(bad_end(-1).find("-1 given"), std::string::npos);
}

TEST(Validate, PointersAndRecipes) {
  expect_says("q is required", [](Call& c) { c.params.q = {}; });
  expect_says("k is required", [](Call& c) { c.params.k = {}; });
  expect_says("v is required", [](Call& c) { c.params.v = {}; });
  expect_says("out is required", [](Call& c) { c.outputs.out = {}; });
  expect_says("lse of the forward pass is required", [](Call& c) { c.gradients.lse = {}; });
  expect_says("gradient of the output is required", [](Call& c) { c.gradients.d_out = {}; });
  expect_says("output of the forward pass is required", [](Call& c) { c.gradients.out = {}; });
  expect_says("v_scale recipe: g is given and needs log_n",
              [](Call& c) { c.params.v_scale.recipe.log_n = nullptr; });
  expect_says("source of a recipe with w is required",
              [](Call& c) { c.params.q_scale.recipe.source = {}; });
  expect_says("k_scale recipe: w is given", [](Call& c) { c.params.k_scale.recipe.size = 0; });
  expect_says("other strides", [](Call& c) { c.params.k_scale.recipe.source.row = 5; });
  expect_says("s alone", [](Call& c) {
    c.params.q_scale.recipe.w = c.params.q_scale.recipe.g = c.params.q_scale.recipe.c = nullptr;
  });
  expect_says("leave the gradient of the source absent",
              [](Call& c) { c.gradients.q_scale.source = c.gradients.q; });
  expect_says("absent bias", [](Call& c) { c.params.bias = {}; });
  expect_says("absent sinks", [](Call& c) { c.params.sinks = nullptr; });
  expect_says("absent post", [](Call& c) { c.params.post = {}; });
  expect_says("absent row scales", [](Call& c) { c.params.q_scale.rows = {}; });
  expect_says("absent w, g, c or s", [](Call& c) { c.params.q_scale.recipe.c = nullptr; });
}

TEST(Validate, OutputsDoNotOverlap) {
  expect_says("out: strides (", [](Call& c) { c.outputs.out.row = 0; });
  expect_says("out: strides (", [](Call& c) { c.outputs.out.row = 15; });
  expect_says("out: strides (", [](Call& c) { c.outputs.out.head = 16; });
  expect_says("out: strides (", [](Call& c) { c.outputs.out.row = -16; });
  expect_says("lse: strides (", [](Call& c) { c.outputs.lse.row = 0; });
  expect_says("gradient of k: strides (", [](Call& c) { c.gradients.k.batch = 0; });
  expect_says("gradient of the bias: strides (", [](Call& c) { c.gradients.bias.row = 32; });
}

TEST(Validate, EmptyTensorsNeedNoPointers) {
  EXPECT_EQ(complaint_of([](Call& c) {
              c.params.shape.batch = 0;
              c.params.q = c.params.k = c.params.v = {};
              c.outputs.out = {};
              c.gradients.out = c.gradients.d_out = {};
              c.gradients.lse = {};
            }),
            "");
}

TEST(Validate, Decode) {
  static const int32_t kLong[] = {200, 201, 5};
  static const int32_t kNoBlocks[] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  static const int32_t kNegative[] = {200, -1, 5};
  EXPECT_EQ(decode_complaint_of([](Call&) {}), "");
  expect_decode_says("lengths are required", [](Call& c) { c.decode.lengths = nullptr; });
  expect_decode_says("length of sequence 1: 201 given, 0 to 200",
                     [](Call& c) { c.decode.lengths = kLong; });
  expect_decode_says("length of sequence 1: -1", [](Call& c) { c.decode.lengths = kNegative; });
  expect_decode_says("block size: 0", [](Call& c) { c.decode.block_size = 0; });
  expect_decode_says("12 entries given, 13 needed for 200 rows",
                     [](Call& c) { c.decode.table_stride = 12; });
  expect_decode_says("entry 0: -1", [](Call& c) { c.decode.block_table = kNoBlocks; });
  expect_decode_says("finished scales", [](Call& c) {
    c.decode.attention.k_scale.recipe.c = c.decode.attention.q_scale.recipe.c;
  });
}

}  // namespace
}  // namespace tempera::kernels
