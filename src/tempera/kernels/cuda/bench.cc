// The time and the bytes a second of every CUDA kernel at the shapes of a training step, beside
// those of a plain copy. Prints a table, or with --json one document.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/device_mirror.h"
#include "tempera/kernels/cuda/fused.h"
#include "tempera/kernels/cuda/prologue.h"
#include "tempera/kernels/reference/problem.h"

namespace tempera::kernels::cuda {
namespace {

constexpr int64_t kBatch = 16, kRows = 2048, kWidth = 768, kHeads = 12, kSize = 64;
constexpr int64_t kTokens = kBatch * kRows, kVocabulary = 50304, kLossRows = 8192;

// Device memory with normal numbers, one draw of a million repeated.
template <class T>
class Numbers {
 public:
  explicit Numbers(int64_t count, double mean = 0, double deviation = 1)
      : bytes_(sizeof(T) * static_cast<size_t>(count)) {
    std::mt19937_64 engine(3);
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<T> draw(static_cast<size_t>(std::min<int64_t>(count, 1 << 20)));
    for (T& value : draw) value = from_double<T>(normal(engine));
    for (size_t at = 0; at < bytes_.size(); at += draw.size() * sizeof(T))
      check(
          cudaMemcpy(static_cast<char*>(bytes_.data()) + at, draw.data(),
                     std::min(draw.size() * sizeof(T), bytes_.size() - at), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  T* data() const { return static_cast<T*>(bytes_.data()); }
  Rows<T> heads(int64_t heads, int64_t size) const {
    return {data(), heads * kRows * size, kRows * size, size};
  }
  Rows<const T> input(int64_t heads, int64_t size) const {
    return {data(), heads * kRows * size, kRows * size, size};
  }

 private:
  DeviceBytes bytes_;
};

template <class T>
class Integers {
 public:
  Integers(int64_t count, int64_t limit) : bytes_(sizeof(T) * static_cast<size_t>(count)) {
    std::mt19937_64 engine(4);
    std::vector<T> draw;
    // Like words: small numbers are frequent.
    std::exponential_distribution<double> skewed(8.0 / static_cast<double>(limit));
    for (int64_t i = 0; i < count; ++i)
      draw.push_back(std::min(static_cast<T>(skewed(engine)), static_cast<T>(limit - 1)));
    check(cudaMemcpy(bytes_.data(), draw.data(), bytes_.size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  T* data() const { return static_cast<T*>(bytes_.data()); }

 private:
  DeviceBytes bytes_;
};

struct Row {
  std::string name;
  double microseconds, low, high;
  double work;    // bytes, or operations
  bool products;  // operations
};

class Bench {
 public:
  // Medians and quartiles; the second-level cache is cleared before every run.
  void time(const std::string& name, double work, const std::function<void()>& body,
            bool products = false) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<double> times;
    for (int run = 0; run < kWarmUp + kRuns; ++run) {
      flush_.fill(run);
      check(cudaEventRecord(begin, nullptr), "cudaEventRecord");
      body();
      check(cudaEventRecord(end, nullptr), "cudaEventRecord");
      check(cudaEventSynchronize(end), name.c_str());
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
      if (run >= kWarmUp) times.push_back(static_cast<double>(milliseconds) * 1e3);
    }
    std::sort(times.begin(), times.end());
    rows_.push_back(
        {name, times[kRuns / 2], times[kRuns / 4], times[3 * kRuns / 4], work, products});
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }

  void print(bool json) const {
    const double ceiling = rows_[0].work / rows_[0].microseconds;
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    if (json) std::cout << "{\"device\": \"" << device.name << "\", \"kernels\": [";
    const char* comma = "";
    for (const Row& row : rows_) {
      const double rate = row.work / row.microseconds * 1e-6;  // a second, in units of 10^12
      char line[256];
      if (json)
        std::snprintf(
            line, sizeof line,
            "%s{\"name\": \"%s\", \"us\": %.1f, \"quartiles\": [%.1f, %.1f], \"%s\": %.3f}", comma,
            row.name.c_str(), row.microseconds, row.low, row.high,
            row.products ? "tflop_s" : "tb_s", rate);
      else if (row.products)
        std::snprintf(line, sizeof line, "%-42s %9.1f us (%.1f-%.1f)  %.1f TFLOP/s\n",
                      row.name.c_str(), row.microseconds, row.low, row.high, rate);
      else
        std::snprintf(line, sizeof line, "%-42s %9.1f us (%.1f-%.1f)  %.1f MB %.2f TB/s %.0f %%\n",
                      row.name.c_str(), row.microseconds, row.low, row.high, row.work * 1e-6, rate,
                      100 * row.work / row.microseconds / ceiling);
      std::cout << line;
      comma = ", ";
    }
    if (json) std::cout << "]}\n";
  }

 private:
  static constexpr int kWarmUp = 3, kRuns = 21;
  DeviceBytes flush_{size_t{256} << 20};
  std::vector<Row> rows_;
};

// Queries and values get SSA, whose gradients are written from `sums` on; returns where they end.
template <class T>
float* use_ssa(PrologueParams<T>& p, PrologueGradients<T>& g, const Numbers<float>& w,
               const Numbers<float>& per_head, float* sums) {
  for (auto [operand, gradient] : {std::pair(&p.q, &g.q), std::pair(&p.v, &g.v)}) {
    operand->scale.w = w.data();
    operand->scale.g = operand->scale.c = per_head.data();
    gradient->w = sums;
    gradient->g = sums + kWidth;
    gradient->c = sums + kWidth + kHeads;
    sums += kWidth + 2 * kHeads;
  }
  return sums;
}

template <class T>
void bench_prologue(Bench& bench, const std::string& type) {
  const int64_t columns = 3 * kWidth;
  const Numbers<T> x(kTokens * columns), d_x(kTokens * columns);
  const Numbers<T> q(kTokens * kWidth), k(kTokens * kWidth), v(kTokens * kWidth);
  const Numbers<float> w(kWidth, 0, 0.1), per_head(kHeads), gain(kSize, 1), bias(columns, 0, 0.1);
  const Numbers<float> table(kRows * kSize), log_n(kTokens, 5);
  const Numbers<float> d_numbers(columns + 2 * kWidth + 16 * kHeads);
  PrologueParams<T> p;
  p.batch = kBatch;
  p.rows = kRows;
  const auto part = [&](auto* from, int64_t which) {
    return projection_heads(from, kRows, columns, which * kWidth, kSize);
  };
  const T* const from = x.data();
  p.x_q = part(from, 0);
  p.x_k = part(from, 1);
  p.x_v = part(from, 2);
  p.q.heads = p.k.heads = p.v.heads = kHeads;
  p.q.size = p.k.size = p.v.size = kSize;
  p.q.rotate = p.k.rotate = true;
  p.pairs = kSize / 2;
  p.cos = table.data();
  p.sin = table.data() + kRows * kSize / 2;
  p.log_n = log_n.data();
  PrologueGradients<T> g;
  g.d_q = q.input(kHeads, kSize);
  g.d_k = k.input(kHeads, kSize);
  g.d_v = v.input(kHeads, kSize);
  T* const to = d_x.data();
  g.x_q = part(to, 0);
  g.x_k = part(to, 1);
  g.x_v = part(to, 2);
  const double size = static_cast<double>(kTokens * columns) * sizeof(T);
  const DeviceBytes workspace(prologue_backward_workspace(p));
  // read: operands whose rows the backward pass needs.
  const auto both = [&](const std::string& what, double read) {
    bench.time("prologue forward, " + what + ", " + type, 2 * size, [&] {
      prologue_forward(p, {q.heads(kHeads, kSize), k.heads(kHeads, kSize), v.heads(kHeads, kSize)},
                       nullptr);
    });
    bench.time("prologue backward, " + what + ", " + type, (2 + read / 3) * size,
               [&] { prologue_backward(p, g, workspace.data(), nullptr); });
  };
  both("softmax", 0);
  float* const next = use_ssa(p, g, w, per_head, d_numbers.data());
  both("ssa q and v", 2);
  p.q.norm = p.k.norm = true;
  p.q.gain = p.k.gain = gain.data();
  p.bias = bias.data();
  g.bias = next;
  both("ssa, norm, bias", 3);
}

// SSA of queries and values that are ready: nothing is split or rotated.
void bench_temperatures(Bench& bench, int64_t batch, int64_t heads, int64_t rows, int64_t size) {
  const int64_t width = heads * size, count = batch * rows * width;
  const Numbers<BFloat16> x_q(count), x_v(count), q(count), v(count), d_q(count), d_v(count);
  const Numbers<float> w(width, 0, 0.1), per_head(heads), d_numbers(2 * (width + heads));
  const auto heads_of = [&](auto* data) {
    return Rows<std::remove_pointer_t<decltype(data)>>{data, rows * width, size, width};
  };
  const auto input = [&](const Numbers<BFloat16>& numbers) {
    return heads_of(static_cast<const BFloat16*>(numbers.data()));
  };
  PrologueParams<BFloat16> p;
  PrologueGradients<BFloat16> g;
  p.batch = batch;
  p.rows = rows;
  p.x_q = input(x_q);
  p.x_v = input(x_v);
  g.d_q = input(d_q);
  g.d_v = input(d_v);
  g.x_q = heads_of(q.data());
  g.x_v = heads_of(v.data());
  float* next = d_numbers.data();
  for (auto [operand, gradient] : {std::pair(&p.q, &g.q), std::pair(&p.v, &g.v)}) {
    operand->heads = heads;
    operand->size = size;
    operand->scale = {
        .rows = {}, .w = w.data(), .g = per_head.data(), .c = per_head.data(), .g_is_logit = true};
    gradient->w = next;
    gradient->g = next + width;
    next += width + heads;
  }
  const auto name = [&](const char* pass) {
    return concat("ssa of ready q and v ", pass, ", B", batch, " H", heads, " T", rows, " D", size);
  };
  const double bytes = 2.0 * static_cast<double>(count) * sizeof(BFloat16);
  const DeviceBytes workspace(prologue_backward_workspace(p));
  bench.time(name("forward"), 2 * bytes, [&] {
    prologue_forward(p, {heads_of(q.data()), {}, heads_of(v.data())}, nullptr);
  });
  bench.time(name("backward"), 3 * bytes,
             [&] { prologue_backward(p, g, workspace.data(), nullptr); });
}

template <class T>
void bench_norm(Bench& bench, const std::string& type) {
  const Numbers<T> x(kTokens * kWidth), r(kTokens * kWidth), h(kTokens * kWidth),
      y(kTokens * kWidth), d(kTokens * kWidth);
  const Numbers<float> gain(kWidth, 1), rstd(kTokens, 1), d_gain(2 * kWidth);
  const double size = static_cast<double>(kTokens * kWidth) * sizeof(T);
  NormParams<T> p;
  p.rows = kTokens;
  p.size = kWidth;
  p.x = x.data();
  p.residual = r.data();
  p.gain = gain.data();
  p.epsilon = 1e-5F;
  bench.time("residual and RMSNorm forward, " + type, 4 * size, [&] {
    norm_forward(p, {.h = h.data(), .y = y.data(), .rstd = rstd.data()}, nullptr);
  });
  NormGradients<T> g;
  g.rstd = rstd.data();
  g.mean = rstd.data();
  g.d_y = y.data();
  g.d_h = d.data();
  g.d_x = r.data();
  g.d_gain = d_gain.data();
  const DeviceBytes workspace(norm_backward_workspace(kTokens, kWidth));
  bench.time("residual and RMSNorm backward, " + type, 4 * size,
             [&] { norm_backward(p, g, workspace.data(), nullptr); });
  p.centred = true;
  g.d_bias = d_gain.data() + kWidth;
  bench.time("residual and LayerNorm backward, " + type, 4 * size,
             [&] { norm_backward(p, g, workspace.data(), nullptr); });
}

template <class T>
void bench_activations(Bench& bench, const std::string& type) {
  const int64_t hidden = 2048, wide = 3072;
  const Numbers<T> x(kTokens * 2 * hidden), y(kTokens * wide), d_x(kTokens * 2 * hidden);
  const auto both = [&](const char* name, const ActivationParams<T>& p) {
    const double size = static_cast<double>(kTokens * p.size) * sizeof(T);
    const double inputs = p.gated ? 2 : 1;
    bench.time(std::string(name) + " forward, " + type, (inputs + 1) * size,
               [&] { activation_forward(p, y.data(), nullptr); });
    bench.time(std::string(name) + " backward, " + type, (2 * inputs + 1) * size,
               [&] { activation_backward(p, y.data(), d_x.data(), nullptr); });
  };
  both("SwiGLU",
       {.kind = Activation::kSilu, .gated = true, .rows = kTokens, .size = hidden, .x = x.data()});
  both("GELU", {.kind = Activation::kGelu, .rows = kTokens, .size = wide, .x = x.data()});
}

void bench_loss(Bench& bench) {
  using T = BFloat16;
  const Numbers<T> logits(kLossRows * kVocabulary);
  const Integers<int64_t> targets(kLossRows, kVocabulary);
  const Numbers<float> loss(kLossRows);
  CrossEntropyParams<T> p;
  p.rows = kLossRows;
  p.classes = kVocabulary;
  p.logits = logits.data();
  p.targets = targets.data();
  p.loss = loss.data();
  const double size = static_cast<double>(kLossRows * kVocabulary) * sizeof(T);
  bench.time("cross-entropy and gradient, bf16", 2 * size,
             [&] { cross_entropy(p, nullptr, nullptr); });
}

void bench_embedding(Bench& bench) {
  using T = BFloat16;
  const Numbers<T> d_y(kTokens * kWidth);
  const Numbers<float> d_table(kVocabulary * kWidth);
  const Integers<int64_t> ids(kTokens, kVocabulary);
  const double rows = static_cast<double>(kTokens * kWidth) * sizeof(T);
  const double all = static_cast<double>(kVocabulary * kWidth) * sizeof(float);
  const DeviceBytes workspace(embedding_backward_workspace(kTokens));
  bench.time("embedding backward, bf16", rows + all, [&] {
    embedding_backward<T>({.rows = kTokens,
                           .size = kWidth,
                           .classes = kVocabulary,
                           .ids = ids.data(),
                           .d_y = d_y.data(),
                           .d_table = d_table.data()},
                          workspace.data(), nullptr);
  });
}

void bench_optimizer(Bench& bench) {
  const int64_t count = 124'000'000 / 8 * 8;
  const Numbers<float> master(count), mean(count, 0, 0.01), square(count, 1, 0.01);
  const Numbers<BFloat16> gradient(count), value(count);
  std::vector<OptimizerTensor> tensors(1);
  tensors[0].count = count;
  tensors[0].master = master.data();
  tensors[0].mean = mean.data();
  tensors[0].square = square.data();
  tensors[0].value = value.data();
  tensors[0].gradient_bf16 = gradient.data();
  std::vector<OptimizerChunk> chunks = optimizer_chunks(tensors);
  std::vector<AdamWStep> step{{1e-3F, 0.9F, 0.95F, 1e-8F, 0.5F, 0.5F}};
  std::vector<float> result(2);
  DeviceMirror mirror;
  mirror.add(tensors);
  mirror.add(chunks);
  mirror.add(step);
  mirror.add(result);
  const OptimizerList list{mirror(tensors.data()), mirror(chunks.data()),
                           static_cast<int64_t>(chunks.size())};
  const DeviceBytes workspace(gradient_norm_workspace(list.chunk_count));
  const auto numbers = static_cast<double>(count);
  bench.time("gradient norm, 124M, bf16", 2 * numbers,
             [&] { gradient_norm(list, 1, mirror(result.data()), workspace.data(), nullptr); });
  bench.time("AdamW, 124M, bf16 with fp32 master", 28 * numbers,
             [&] { adamw(list, mirror(step.data()), mirror(result.data() + 1), nullptr); });
}

// Causal, bf16, counted as 4 B H T T D / 2 operations forward and 2.5 times that backward.
void bench_attention(Bench& bench, int64_t batch, int64_t heads, int64_t rows, int64_t size,
                     bool everything) {
  using T = BFloat16;
  const int64_t count = batch * heads * rows * size;
  const Numbers<T> q(count), k(count), v(count), out(count), d_out(count), d_q(count), d_k(count),
      d_v(count);
  const Numbers<float> lse(batch * heads * rows), sinks(heads);
  AttentionParams<T> p;
  p.shape = {batch, heads, heads, rows, rows, size, size};
  const auto dense = [&](T* data) { return Rows<T>{data, heads * rows * size, rows * size, size}; };
  const auto input = [&](const T* data) {
    return Rows<const T>{data, heads * rows * size, rows * size, size};
  };
  p.q = input(q.data());
  p.k = input(k.data());
  p.v = input(v.data());
  p.mask.causal = true;
  p.scale = 1 / std::sqrt(static_cast<float>(size));
  if (everything) {
    p.cap = 30;
    p.sinks = sinks.data();
  }
  AttentionOutputs<T> o;
  o.out = dense(out.data());
  o.lse = {lse.data(), heads * rows, rows, 1};
  AttentionGradients<T> g;
  g.out = input(out.data());
  g.lse = {lse.data(), heads * rows, rows, 1};
  g.d_out = input(d_out.data());
  g.q = dense(d_q.data());
  g.k = dense(d_k.data());
  g.v = dense(d_v.data());
  const DeviceBytes forward(attention_forward_workspace(p));
  const DeviceBytes backward(attention_backward_workspace(p, g));
  const double operations = 2.0 * static_cast<double>(count) * static_cast<double>(rows);
  const std::string what =
      concat(everything ? "cap and sinks, " : "", "B", batch, " H", heads, " T", rows, " D", size);
  bench.time(
      "attention forward, " + what, operations,
      [&] { attention_forward(p, o, forward.data(), nullptr); }, true);
  bench.time(
      "attention backward, " + what, 2.5 * operations,
      [&] { attention_backward(p, g, backward.data(), nullptr); }, true);
}

// One new row a sequence; the bytes are those of keys and values.
void bench_decode(Bench& bench, int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t keys) {
  using T = BFloat16;
  const int64_t size = 128, count = batch * kv_heads * keys * size;
  const Numbers<T> k(count), v(count), q(batch * q_heads * size), out(batch * q_heads * size);
  std::vector<int32_t> lengths(static_cast<size_t>(batch), static_cast<int32_t>(keys));
  DeviceMirror mirror;
  mirror.add(lengths);
  DecodeParams<T> p;
  p.attention.shape = {batch, q_heads, kv_heads, 1, keys, size, size};
  p.attention.q = {q.data(), q_heads * size, size, size};
  p.attention.k = {k.data(), kv_heads * keys * size, keys * size, size};
  p.attention.v = {v.data(), kv_heads * keys * size, keys * size, size};
  p.attention.mask.causal = true;
  p.attention.scale = 0.088F;
  p.lengths = mirror(lengths.data());
  AttentionOutputs<T> o;
  o.out = {out.data(), q_heads * size, size, size};
  const DeviceBytes workspace(decode_workspace(p));
  bench.time(concat("decode, B", batch, " heads ", q_heads, "/", kv_heads, ", ", keys, " keys"),
             4.0 * static_cast<double>(count), [&] { decode(p, o, workspace.data(), nullptr); });
}

void run(bool json) {
  Bench bench;
  const size_t size = size_t{2} << 30;
  {
    const DeviceBytes from(size), to(size);
    bench.time("copy", 2.0 * static_cast<double>(size), [&] {
      check(cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyDeviceToDevice, nullptr),
            "cudaMemcpyAsync");
    });
  }
  bench_prologue<BFloat16>(bench, "bf16");
  bench_prologue<float>(bench, "fp32");
  bench_temperatures(bench, 4, 16, 2048, 64);
  bench_temperatures(bench, 2, 16, 8192, 128);
  bench_norm<BFloat16>(bench, "bf16");
  bench_activations<BFloat16>(bench, "bf16");
  bench_loss(bench);
  bench_embedding(bench);
  bench_optimizer(bench);
  bench_attention(bench, 4, 16, 2048, 64, false);
  bench_attention(bench, 4, 16, 2048, 64, true);
  bench_attention(bench, 2, 16, 8192, 128, false);
  bench_decode(bench, 1, 32, 8, 32768);
  bench_decode(bench, 16, 32, 8, 8192);
  bench.print(json);
}

}  // namespace
}  // namespace tempera::kernels::cuda

int main(int argc, char** argv) {
  try {
    const std::string why = tempera::kernels::cuda::why_no_device();
    if (!why.empty()) throw tempera::Error("needs a GPU: " + why);
    tempera::kernels::cuda::run(argc > 1 && std::strcmp(argv[1], "--json") == 0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
