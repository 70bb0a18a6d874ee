#include "tempera/ops/checks.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tempera/base/error.h"
#include "tempera/ops/composed/composed.h"
#include "tempera/ops/test_util.h"

namespace tempera::ops {
namespace {

AttentionArgs good() {
  AttentionArgs args;
  args.q = random({2, 4, 8, 16}, 1, at::kFloat);
  args.k = random({2, 2, 8, 16}, 2, at::kFloat);
  args.v = random({2, 2, 8, 16}, 3, at::kFloat);
  return args;
}

struct BadCase {
  const char* message;  // a part of the error
  std::function<void(AttentionArgs&)> spoil;
};

at::Tensor with(at::Tensor tensor, double number) {
  tensor.view(-1)[0] = number;
  return tensor;
}

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

std::vector<BadCase> bad_cases() {
  using A = AttentionArgs;
  const auto longs = [](std::vector<int64_t> numbers) { return at::tensor(numbers, at::kLong); };
  return {
      {"one of them is undefined", [](A& a) { a.q.reset(); }},
      {"q: shape [4, 8, 16] given", [](A& a) { a.q = a.q[0]; }},
      {"k: shape [2, 2, 8, 12] given",
       [](A& a) {
         a.k = at::zeros({2, 2, 8, 12});
       }},
      {"v: shape [2, 2, 7, 16] given",
       [](A& a) {
         a.v = at::zeros({2, 2, 7, 16});
       }},
      {"k: shape [1, 2, 8, 16] given",
       [](A& a) {
         a.k = at::zeros({1, 2, 8, 16});
       }},
      {"a multiple of the 3 heads",
       [](A& a) {
         a.k = a.v = at::zeros({2, 3, 8, 16});
       }},
      {"k: dtype Double given, Float", [](A& a) { a.k = a.k.to(at::kDouble); }},
      {"q, k, v: dtype Half given",
       [](A& a) {
         a.q = a.q.to(at::kHalf);
         a.k = a.k.to(at::kHalf);
         a.v = a.v.to(at::kHalf);
       }},
      {"q: dtype Long given", [](A& a) { a.q = a.q.to(at::kLong); }},
      {"v: on device meta", [](A& a) { a.v = a.v.to(at::kMeta); }},
      {"a multiple of 8 up to 256",
       [](A& a) {
         a.q = at::zeros({2, 4, 8, 18});
         a.k = at::zeros({2, 2, 8, 18});
       }},
      {"a_q: shape [2, 3, 8] given",
       [](A& a) {
         a.a_q = at::ones({2, 3, 8});
       }},
      {"a_q: shape [1, 2, 4, 8] given",
       [](A& a) {
         a.a_q = at::ones({1, 2, 4, 8});
       }},
      {"a_k: shape [2, 4, 8] given",
       [](A& a) {
         a.a_k = at::ones({2, 4, 8});
       }},
      {"a_v: shape [9] given", [](A& a) { a.a_v = at::ones({9}); }},
      {"a_q: dtype Int given",
       [](A& a) {
         a.a_q = at::ones({2, 4, 8}, at::kInt);
       }},
      {"a_q: NaN or infinite",
       [](A& a) {
         a.a_q = with(at::ones({2, 4, 8}), kNan);
       }},
      {"a_k: NaN or infinite",
       [](A& a) {
         a.a_k = with(at::ones({2, 1, 1}), kInfinity);
       }},
      {"a_v: NaN or infinite", [](A& a) { a.a_v = with(at::ones({8}), -kInfinity); }},
      {"post: NaN or infinite", [](A& a) { a.post = with(at::ones({8}), kNan); }},
      {"post: shape [2, 8] given",
       [](A& a) {
         a.post = at::ones({2, 8});
       }},
      {"q_w: shape [4, 8] given",
       [](A& a) {
         a.q_recipe.w = at::ones({4, 8});
       }},
      {"q_source: shape [2, 4, 7, 16] given",
       [](A& a) {
         a.q_recipe.w = at::ones({4, 16});
         a.q_recipe.source = at::ones({2, 4, 7, 16});
       }},
      {"q_source is given without", [](A& a) { a.q_recipe.source = a.q.clone(); }},
      {"k_g: shape [4] given", [](A& a) { a.k_recipe.g = at::ones({4}); }},
      {"v_c: shape [] given", [](A& a) { a.v_recipe.c = at::ones({}); }},
      {"q_s: given alone", [](A& a) { a.q_recipe.s = at::ones({4}); }},
      {"v_g needs key_counts",
       [](A& a) {
         a.q = a.q.slice(2, 0, 3);
         a.v_recipe.g = at::ones({2});
       }},
      {"key_counts: shape [2, 7] given",
       [](A& a) {
         a.key_counts = at::ones({2, 7}, at::kLong);
       }},
      {"bias: shape [2, 2, 8, 8] given",
       [](A& a) {
         a.bias = at::ones({2, 2, 8, 8});
       }},
      {"bias: shape [8, 8] given",
       [](A& a) {
         a.bias = at::ones({8, 8});
       }},
      {"sinks: shape [2] given", [](A& a) { a.sinks = at::ones({2}); }},
      {"window: 0 given", [](A& a) { a.window = 0; }},
      {"window: -3 given", [](A& a) { a.window = -3; }},
      {"cap: -1 given", [](A& a) { a.cap = -1; }},
      {"cap: nan given", [](A& a) { a.cap = kNan; }},
      {"scale: inf given", [](A& a) { a.scale = kInfinity; }},
      {"dropout: 1 given", [](A& a) { a.dropout = 1; }},
      {"dropout: -0.5 given", [](A& a) { a.dropout = -0.5; }},
      {"sum to 7 rows, 8 expected",
       [=](A& a) {
         a.documents = longs({4, 3, 4, 4}).view({2, 2});
       }},
      {"a document of -1 rows",
       [=](A& a) {
         a.documents = longs({9, -1, 4, 4}).view({2, 2});
       }},
      {"documents: shape [1, 2] given",
       [=](A& a) {
         a.documents = longs({4, 4}).view({1, 2});
       }},
      {"documents: dtype Float given",
       [](A& a) {
         a.documents = at::full({2, 1}, 8.0);
       }},
      {"give key_documents too",
       [=](A& a) {
         a.q = a.q.slice(2, 0, 4);
         a.documents = longs({4, 4}).view({2, 1});
       }},
      {"given without documents",
       [=](A& a) {
         a.key_documents = longs({8, 8}).view({2, 1});
       }},
      {"key_documents with causal",
       [=](A& a) {
         a.causal = true;
         a.documents = a.key_documents = longs({8, 8}).view({2, 1});
       }},
      {"given as 5 to 3",
       [=](A& a) {
         a.key_start = longs({5, 0});
         a.key_end = longs({3, 8});
       }},
      {"given as 0 to 9",
       [=](A& a) {
         a.key_end = longs({9, 8});
       }},
      {"given as -1 to 8",
       [=](A& a) {
         a.key_start = longs({-1, 0});
       }},
      {"key_end: 8 to 9 given, 0 to 8",
       [=](A& a) {
         a.key_end = at::full({2, 8}, 8, at::kLong).index_put_({at::tensor(1)}, longs({9}));
       }},
      {"key_end: shape [2, 7] given",
       [=](A& a) {
         a.key_end = at::full({2, 7}, 8, at::kLong);
       }},
      {"the rows' own ranges say all",
       [=](A& a) {
         a.key_end = at::full({2, 8}, 8, at::kLong);
         a.documents = longs({8, 8}).view({2, 1});
       }},
      {"key_start: shape [3] given",
       [=](A& a) {
         a.key_start = longs({0, 0, 0});
       }},
  };
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return concat("not a tempera::Error: ", error.what());
  }
  return "no error";
}

TEST(Checks, GoodArgumentsPass) { EXPECT_NO_THROW(attention(good())); }

TEST(Checks, BadArgumentsAreNamed) {
  for (const BadCase& bad : bad_cases()) {
    AttentionArgs args = good();
    bad.spoil(args);
    EXPECT_NE(message_of([&] { attention(args); }).find(bad.message), std::string::npos)
        << "expected: " << bad.message << "\ngot: " << message_of([&] { attention(args); });
  }
}

TEST(Checks, TheCompositionNamesWhatItCannotDo) {
  const std::vector<BadCase> cases = {
      {"cap", [](AttentionArgs& a) { a.cap = 5; }},
      {"post", [](AttentionArgs& a) { a.post = at::ones({8}); }},
      {"sinks", [](AttentionArgs& a) { a.sinks = at::ones({4}); }},
      {"dropout", [](AttentionArgs& a) { a.dropout = 0.1; }},
      {"want_head_max", [](AttentionArgs& a) { a.want_head_max = true; }},
  };
  for (const BadCase& bad : cases) {
    AttentionArgs args = good();
    bad.spoil(args);
    const std::string message = message_of([&] { composed_backend().attention(args); });
    EXPECT_NE(message.find(bad.message), std::string::npos) << message;
    EXPECT_NE(message.find("not available"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tempera::ops
