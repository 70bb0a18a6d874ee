// The passes between the products against naive ones in double precision.
#include "tempera/kernels/cuda/fused.h"

#include <gtest/gtest.h>

#include <numbers>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/testing.h"

namespace tempera::kernels::cuda {
namespace {

size_t u(int64_t i) { return static_cast<size_t>(i); }

void finish(const DeviceMirror& mirror) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  mirror.download();
}

template <class T>
class CudaFused : public testing::Test {
 protected:
  std::mt19937_64 engine_{11};
};
TYPED_TEST_SUITE(CudaFused, KernelTypes, TypeNames);

struct NormCase {
  int64_t rows, size;
  bool centred, residual, gain, bias;
};

// y, h, mean, rstd, then the gradients d_x, d_gain, d_bias.
template <class R, class T>
Tensors<R> naive_norm(const NormCase& c, const Tensors<double>& in) {
  const Tensors<R> n = converted<R>(in);
  Tensors<R> out;
  out["d_gain"].resize(u(c.size));
  out["d_bias"].resize(u(c.size));
  for (int64_t r = 0; r < c.rows; ++r) {
    std::vector<R> h, g;
    R mean = 0, square = 0, product = 0, total = 0;
    for (int64_t i = 0; i < c.size; ++i) {
      R x = n.at("x")[u(r * c.size + i)];
      if (c.residual)
        x = static_cast<R>(
            to_double(from_double<T>(to_double(x + n.at("residual")[u(r * c.size + i)]))));
      h.push_back(x);
      if (c.centred) mean += x / static_cast<R>(c.size);
    }
    for (const R x : h) square += (x - mean) * (x - mean) / static_cast<R>(c.size);
    const R rstd = 1 / std::sqrt(square + R(1e-5));
    for (int64_t i = 0; i < c.size; ++i) {
      const R normed = (h[u(i)] - mean) * rstd;
      const R gain = c.gain ? n.at("gain")[u(i)] : R{1};
      const R d = n.at("d_y")[u(r * c.size + i)];
      out["y"].push_back(normed * gain + (c.bias ? n.at("bias")[u(i)] : R{0}));
      out["h"].push_back(h[u(i)]);
      out["d_gain"][u(i)] += d * normed;
      out["d_bias"][u(i)] += d;
      g.push_back(d * gain);
      product += g.back() * normed / static_cast<R>(c.size);
      if (c.centred) total += g.back() / static_cast<R>(c.size);
    }
    for (int64_t i = 0; i < c.size; ++i) {
      const R past = c.residual ? n.at("d_h")[u(r * c.size + i)] : R{0};
      out["d_x"].push_back(past + rstd * (g[u(i)] - total - (h[u(i)] - mean) * rstd * product));
    }
    out["mean"].push_back(mean);
    out["rstd"].push_back(rstd);
  }
  return out;
}

TYPED_TEST(CudaFused, Norm) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  const NormCase cases[] = {
      {5, 8, false, false, true, false},     {33, 768, false, true, true, false},
      {700, 64, true, true, true, true},     {3, 1032, true, false, false, false},
      {600, 2048, false, true, false, true}, {9, 4096, false, true, true, false},
      {7, 8192, true, true, true, true},     {2, 16384, false, false, true, false}};
  for (const NormCase& c : cases) {
    Tensors<double> in;
    for (const char* name : {"x", "residual", "d_y", "d_h"})
      in[name] = normal_numbers<T>(this->engine_, c.rows * c.size, 0.3);
    for (const char* name : {"gain", "bias"})
      in[name] = normal_numbers<float>(this->engine_, c.size, 1, 0.3);
    const auto exact = naive_norm<double, T>(c, in);
    const auto naive = naive_norm<float, T>(c, in);

    Tensors<T> memory;
    for (const char* name : {"x", "residual", "d_y", "d_h"}) memory[name] = converted<T>(in[name]);
    for (const char* name : {"y", "h", "d_x"}) memory[name] = poisoned<T>(u(c.rows * c.size));
    Tensors<float> floats{{"gain", converted<float>(in["gain"])},
                          {"bias", converted<float>(in["bias"])}};
    for (const char* name : {"mean", "rstd"}) floats[name] = poisoned<float>(u(c.rows));
    for (const char* name : {"d_gain", "d_bias"}) floats[name] = poisoned<float>(u(c.size));
    DeviceMirror mirror;
    for (auto& [name, values] : memory) mirror.add(values);
    for (auto& [name, values] : floats) mirror.add(values);
    const auto at = [&](const char* name) { return mirror(memory[name].data()); };
    const auto real = [&](const char* name) { return mirror(floats[name].data()); };

    NormParams<T> p;
    p.rows = c.rows;
    p.size = c.size;
    p.x = at("x");
    if (c.residual) p.residual = at("residual");
    if (c.gain) p.gain = real("gain");
    if (c.bias) p.bias = real("bias");
    p.epsilon = 1e-5F;
    p.centred = c.centred;
    norm_forward(p,
                 {.h = c.residual ? at("h") : nullptr,
                  .y = at("y"),
                  .mean = real("mean"),
                  .rstd = real("rstd")},
                 nullptr);
    NormGradients<T> g;
    g.mean = real("mean");
    g.rstd = real("rstd");
    g.d_y = at("d_y");
    if (c.residual) g.d_h = at("d_h");
    g.d_x = at("d_x");
    g.d_gain = real("d_gain");
    g.d_bias = real("d_bias");
    if (c.residual) p.x = at("h");
    const DeviceWorkspace workspace(norm_backward_workspace(c.rows, c.size));
    norm_backward(p, g, workspace.data(), nullptr);
    finish(mirror);
    EXPECT_TRUE(workspace.guard_intact());
    const std::string what = concat("norm ", c.rows, " x ", c.size, ": ");
    for (const char* name : {"y", "d_x"})
      expect_close<T>(what + name, memory[name], exact.at(name), naive.at(name), 1);
    if (c.residual) expect_close<T>(what + "h", memory["h"], exact.at("h"), naive.at("h"));
    for (const char* name : {"mean", "rstd"})
      expect_close<T>(what + name, floats[name], exact.at(name), naive.at(name));
    for (const char* name : {"d_gain", "d_bias"})
      expect_close<T>(what + name, floats[name], exact.at(name), naive.at(name),
                      static_cast<double>(c.rows));
  }
}

template <class R>
R activate(Activation kind, R x) {
  switch (kind) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x * std::erfc(-x / std::sqrt(R{2})) / 2;
    case Activation::kGeluTanh:
      return x / 2 *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<R>) * (x + R(0.044715) * x * x * x)));
  }
  return x;
}
// By differences, in double.
double activation_slope(Activation kind, double x) {
  const double step = 1e-5;
  return (activate(kind, x + step) - activate(kind, x - step)) / (2 * step);
}

TYPED_TEST(CudaFused, Activations) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  const int64_t rows = 37, size = 72;
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh})
    for (const bool gated : {false, true}) {
      const int64_t columns = gated ? 2 * size : size;
      const auto x = normal_numbers<T>(this->engine_, rows * columns, 0, 3);
      const auto d_y = normal_numbers<T>(this->engine_, rows * size);
      std::vector<double> y(u(rows * size)), d_x(u(rows * columns));
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < size; ++i) {
          const size_t gate = u(r * columns + i), up = u(r * columns + size + i),
                       to = u(r * size + i);
          const double other = gated ? x[up] : 1;
          y[to] = activate(kind, x[gate]) * other;
          d_x[gate] = d_y[to] * activation_slope(kind, x[gate]) * other;
          if (gated) d_x[up] = d_y[to] * activate(kind, x[gate]);
        }
      auto x_t = converted<T>(x), d_y_t = converted<T>(d_y);
      auto y_t = poisoned<T>(y.size()), d_x_t = poisoned<T>(d_x.size());
      DeviceMirror mirror;
      for (auto* memory : {&x_t, &d_y_t, &y_t, &d_x_t}) mirror.add(*memory);
      const ActivationParams<T> p{kind, gated, rows, size, mirror(x_t.data())};
      activation_forward(p, mirror(y_t.data()), nullptr);
      activation_backward(p, mirror(d_y_t.data()), mirror(d_x_t.data()), nullptr);
      finish(mirror);
      const std::string what = concat("activation ", static_cast<int>(kind), gated ? " gated" : "");
      expect_close<T>(what, y_t, y, converted<float>(y));
      expect_close<T>(what + " d_x", d_x_t, d_x, converted<float>(d_x));
    }
}

// The factor of the gradient is 3 / the number of rows that count.
template <class T>
struct LossCase {
  LossCase(std::mt19937_64& engine, int64_t rows_, int64_t classes_, float smoothing_)
      : rows(rows_), classes(classes_), smoothing(smoothing_) {
    logits = normal_numbers<T>(engine, rows * classes, 0, 4);
    for (int64_t r = 0; r < rows; ++r) {
      targets.push_back(r % 5 == 3 ? -1 : (r * 977) % classes);
      counted += r % 5 != 3;
    }
    const double even = to_double(smoothing) / static_cast<double>(classes);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0, total = 0;
      const double* row = logits.data() + r * classes;
      for (int64_t i = 0; i < classes; ++i) {
        sum += std::exp(row[i]);
        total += row[i];
      }
      const int64_t target = targets[u(r)];
      loss.push_back(
          target < 0 ? 0 : std::log(sum) - (1 - to_double(smoothing)) * row[target] - even * total);
      for (int64_t i = 0; i < classes; ++i)
        gradient.push_back(target < 0 ? 0
                                      : (std::exp(row[i]) / sum - even -
                                         (i == target ? 1 - to_double(smoothing) : 0)) *
                                            3 / counted);
    }
  }

  int64_t rows, classes;
  float smoothing;
  double counted = 0;
  std::vector<double> logits, loss, gradient;
  std::vector<int64_t> targets;
};

TYPED_TEST(CudaFused, CrossEntropy) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const auto& [classes, smoothing] :
       {std::pair<int64_t, float>(8, 0), {50304, 0.0F}, {1003, 0.1F}, {5000, 0.2F}}) {
    LossCase<T> c(this->engine_, 23, classes, smoothing);
    auto logits = converted<T>(c.logits);
    auto loss = poisoned<float>(u(c.rows));
    auto numbers = poisoned<float>(2);
    DeviceMirror mirror;
    mirror.add(logits);
    mirror.add(loss);
    mirror.add(numbers);
    mirror.add(c.targets);
    CrossEntropyParams<T> p;
    p.rows = c.rows;
    p.classes = classes;
    p.logits = mirror(logits.data());
    p.targets = mirror(c.targets.data());
    p.smoothing = smoothing;
    p.factor = 3;
    p.loss = mirror(loss.data());
    target_factor(c.rows, p.targets, mirror(numbers.data()), nullptr);
    const float* const factor = mirror(numbers.data());
    for (const bool gradient : {false, true}) {
      p.gradient = gradient;
      cross_entropy(p, factor, nullptr);
    }
    sum(c.rows, p.loss, factor, mirror(numbers.data() + 1), nullptr);
    finish(mirror);
    EXPECT_NEAR(to_double(numbers[0]), 1 / c.counted, 1e-7);
    double mean = 0;
    for (const double value : c.loss) mean += value / c.counted;
    EXPECT_NEAR(to_double(numbers[1]), mean, 1e-4);
    expect_close<T>("loss", loss, c.loss, converted<float>(c.loss));
    expect_close<T>("gradient", logits, c.gradient, converted<float>(c.gradient));
  }
}

TYPED_TEST(CudaFused, EmbeddingGradient) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  const int64_t rows = 3000, size = 264, classes = 500;
  const auto d_y = normal_numbers<T>(this->engine_, rows * size);
  std::vector<int64_t> ids;
  for (int64_t r = 0; r < rows; ++r)
    ids.push_back(r % 11 == 5 ? -1 : r % 3 == 0 ? 7 : (r * 31) % classes);  // 7 is frequent
  std::vector<double> d_table(u(classes * size));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < size && ids[u(r)] >= 0; ++i)
      d_table[u(ids[u(r)] * size + i)] += d_y[u(r * size + i)];
  auto d_y_t = converted<T>(d_y);
  auto d_float = poisoned<float>(d_table.size());
  DeviceMirror mirror;
  mirror.add(d_y_t);
  mirror.add(ids);
  mirror.add(d_float);
  const DeviceWorkspace workspace(embedding_backward_workspace(rows));
  embedding_backward<T>({.rows = rows,
                         .size = size,
                         .classes = classes,
                         .ids = mirror(ids.data()),
                         .d_y = mirror(d_y_t.data()),
                         .d_table = mirror(d_float.data())},
                        workspace.data(), nullptr);
  finish(mirror);
  EXPECT_TRUE(workspace.guard_intact());
  expect_close<T>("d_table", d_float, d_table, converted<float>(d_table), 1000);
}

TEST(CudaOptimizer, AdamWAndGradientNorm) {
  TEMPERA_NEEDS_GPU();
  std::mt19937_64 engine(5);
  const int64_t counts[] = {1, 7, 40000, 65536};
  std::vector<std::vector<float>> master, mean, square, gradient;
  std::vector<std::vector<BFloat16>> value, gradient_bf16;
  std::vector<OptimizerTensor> tensors;
  double norm = 0;
  for (const int64_t count : counts) {
    master.push_back(converted<float>(normal_numbers<float>(engine, count)));
    mean.push_back(converted<float>(normal_numbers<float>(engine, count, 0, 0.1)));
    square.push_back(std::vector<float>(u(count), 0.02F));
    gradient.push_back(converted<float>(normal_numbers<BFloat16>(engine, count)));
    gradient_bf16.push_back(converted<BFloat16>(gradient.back()));
    value.push_back(poisoned<BFloat16>(u(count)));
    for (const float g : gradient.back()) norm += to_double(g) * to_double(g);
  }
  norm = std::sqrt(norm);
  DeviceMirror mirror;
  for (auto* list : {&master, &mean, &square, &gradient})
    for (auto& tensor : *list) mirror.add(tensor);
  for (auto* list : {&value, &gradient_bf16})
    for (auto& tensor : *list) mirror.add(tensor);
  for (size_t t = 0; t < std::size(counts); ++t) {
    OptimizerTensor tensor;
    tensor.count = counts[t];
    tensor.master = mirror(master[t].data());
    tensor.mean = mirror(mean[t].data());
    tensor.square = mirror(square[t].data());
    if (t % 2 == 0) tensor.value = mirror(value[t].data());
    if (t % 2 == 0)
      tensor.gradient_bf16 = mirror(gradient_bf16[t].data());
    else
      tensor.gradient = mirror(gradient[t].data());
    tensor.decay = t == 1 ? 0 : 0.1F;
    tensor.rate_factor = t == 3 ? 2.0F : 1.0F;
    tensors.push_back(tensor);
  }
  std::vector<OptimizerChunk> chunks = optimizer_chunks(tensors);
  std::vector<AdamWStep> step{{0.01F, 0.9F, 0.95F, 1e-8F, 0.5F, 0.3F}};
  auto result = poisoned<float>(2);
  mirror.add(tensors);
  mirror.add(chunks);
  mirror.add(step);
  mirror.add(result);
  const OptimizerList list{mirror(tensors.data()), mirror(chunks.data()),
                           static_cast<int64_t>(chunks.size())};
  const DeviceWorkspace workspace(gradient_norm_workspace(list.chunk_count));
  const auto before = std::make_pair(master, mean);
  gradient_norm(list, 10, mirror(result.data()), workspace.data(), nullptr);
  adamw(list, mirror(step.data()), mirror(result.data() + 1), nullptr);
  finish(mirror);
  EXPECT_TRUE(workspace.guard_intact());
  EXPECT_NEAR(to_double(result[0]), norm, 1e-5 * norm);
  EXPECT_NEAR(to_double(result[1]), 10 / norm, 1e-5 * 10 / norm);
  for (size_t t = 0; t < std::size(counts); ++t) {
    const double rate = t == 3 ? 0.02 : 0.01, decay = t == 1 ? 0 : 0.1;
    for (size_t i = 0; i < master[t].size(); ++i) {
      const double g = to_double(gradient[t][i]) * 10 / norm;
      const double m = 0.9 * to_double(before.second[t][i]) + 0.1 * g;
      const double v = 0.95 * to_double(0.02F) + 0.05 * g * g;
      const double p = to_double(before.first[t][i]) * (1 - rate * decay) -
                       rate * (m / 0.5) / (std::sqrt(v / 0.3) + 1e-8);
      ASSERT_NEAR(to_double(master[t][i]), p, 2e-6) << t << ", " << i;
      ASSERT_NEAR(to_double(mean[t][i]), m, 1e-6);
      ASSERT_NEAR(to_double(square[t][i]), v, 1e-6);
      if (t % 2 == 0) {
        ASSERT_EQ(value[t][i].bits, from_double<BFloat16>(to_double(master[t][i])).bits);
      }
    }
  }
}

TEST(FusedChecks, BadCallsThrow) {
  NormParams<float> bad_norm;
  bad_norm.rows = 1;
  bad_norm.size = 12;
  EXPECT_THROW(norm_forward(bad_norm, NormOutputs<float>{}, nullptr), Error);
  CrossEntropyParams<float> p;
  p.rows = 1;
  p.classes = 0;
  EXPECT_THROW(cross_entropy(p, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace tempera::kernels::cuda
