// Attention with row temperatures from plain C++: the kernels by themselves, without torch.
//
// Eight tokens attend to the past, once plainly and once with the scales of Selective
// Self-Attention, a = 1 + tanh(<w, gelu(row)>) + g log n, on queries and values. The last line
// checks the gradient of g against a finite difference.
#include "tempera/kernels/attention.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "tempera/base/parallel.h"
#include "tempera/kernels/mask.h"

namespace {

using namespace tempera::kernels;  // NOLINT(google-build-using-namespace): an example

constexpr int64_t kHeads = 2;
constexpr int64_t kTokens = 8;
constexpr int64_t kSize = 16;

std::vector<float> random_numbers(int64_t count, float deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(generator);
  return numbers;
}

// A contiguous (1, kHeads, kTokens, columns).
template <class T>
Rows<T> rows(T* data, int64_t columns) {
  return {data, kHeads * kTokens * columns, kTokens * columns, columns};
}

// Kernels own nothing: their workspace comes from here, aligned to 64 bytes.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : memory_(::operator new(bytes, kLine)) {}
  ~Workspace() { ::operator delete(memory_, kLine); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* get() { return memory_; }

 private:
  static constexpr std::align_val_t kLine{64};
  void* memory_;
};

struct Layer {
  std::vector<float> q = random_numbers(kHeads * kTokens * kSize, 1, 1);
  std::vector<float> k = random_numbers(kHeads * kTokens * kSize, 1, 2);
  std::vector<float> v = random_numbers(kHeads * kTokens * kSize, 1, 3);
  std::vector<float> w = random_numbers(kHeads * kSize, 0.3F, 4);
  std::vector<float> g = std::vector<float>(kHeads, 0.5F);
  std::vector<float> c = std::vector<float>(kHeads, 1.0F);
  std::vector<float> log_n;  // of the keys that each row sees

  Scale<float> scale(const std::vector<float>& source) const {
    Scale<float> scale;
    scale.recipe = {.source = rows(source.data(), kSize),
                    .size = kSize,
                    .w = w.data(),
                    .g = g.data(),
                    .c = c.data(),
                    .log_n = log_n.data()};
    return scale;
  }

  AttentionParams<float> params(bool temperature) {
    AttentionParams<float> p;
    p.shape = {.batch = 1,
               .q_heads = kHeads,
               .kv_heads = kHeads,
               .q_rows = kTokens,
               .kv_rows = kTokens,
               .qk_size = kSize,
               .v_size = kSize};
    p.q = rows<const float>(q.data(), kSize);
    p.k = rows<const float>(k.data(), kSize);
    p.v = rows<const float>(v.data(), kSize);
    p.mask.causal = true;
    p.scale = 1 / std::sqrt(static_cast<float>(kSize));
    if (temperature) {
      log_n = log_visible_counts<float>(p.mask, p.shape);
      p.q_scale = scale(q);
      p.v_scale = scale(v);
    }
    return p;
  }
};

struct Result {
  std::vector<float> out = std::vector<float>(kHeads * kTokens * kSize);
  std::vector<float> lse = std::vector<float>(kHeads * kTokens);
  std::vector<float> entropy = std::vector<float>(kHeads * kTokens);

  // What the finite difference looks at: the sum of all outputs.
  double sum() const {
    double total = 0;
    for (const float x : out) total += static_cast<double>(x);
    return total;
  }
  double mean_entropy() const {
    double total = 0;
    for (const float x : entropy) total += static_cast<double>(x);
    return total / static_cast<double>(entropy.size());
  }
};

Result forward(const AttentionParams<float>& params, tempera::Parallel& threads) {
  Result result;
  AttentionOutputs<float> outputs;
  outputs.out = rows(result.out.data(), kSize);
  outputs.lse = rows(result.lse.data(), 1);
  outputs.entropy = rows(result.entropy.data(), 1);
  Workspace workspace(attention_forward_workspace(params, threads.workers()));
  attention_forward(params, outputs, threads, workspace.get());
  return result;
}

// The gradient of the sum of all outputs with respect to the queries' g; d_q comes with it.
std::vector<float> backward(const AttentionParams<float>& params, const Result& result,
                            tempera::Parallel& threads) {
  const std::vector<float> ones(result.out.size(), 1.0F);
  std::vector<float> d_q(result.out.size()), d_g(kHeads);
  AttentionGradients<float> gradients;
  gradients.out = rows(result.out.data(), kSize);
  gradients.lse = rows(result.lse.data(), 1);
  gradients.d_out = rows(ones.data(), kSize);
  gradients.q = rows(d_q.data(), kSize);
  gradients.q_scale.g = d_g.data();
  Workspace workspace(attention_backward_workspace(params, gradients, threads.workers()));
  attention_backward(params, gradients, threads, workspace.get());
  return d_g;
}

int run() {
  const auto threads = tempera::make_thread_pool(2);
  Layer layer;
  const Result plain = forward(layer.params(/*temperature=*/false), *threads);
  const auto params = layer.params(/*temperature=*/true);
  const Result result = forward(params, *threads);
  std::printf("mean entropy of a row: %.3f plain, %.3f with temperatures\n", plain.mean_entropy(),
              result.mean_entropy());

  const double computed = static_cast<double>(backward(params, result, *threads)[0]);
  // g of the queries alone: the values keep theirs.
  constexpr float kStep = 1e-2F;
  const auto moved = [&](float step) {
    std::vector<float> g = layer.g;
    g[0] += step;
    auto other = params;
    other.q_scale.recipe.g = g.data();
    return forward(other, *threads).sum();
  };
  const double difference = (moved(kStep) - moved(-kStep)) / (2 * static_cast<double>(kStep));
  std::printf("gradient of g of head 0: %.4f, by finite difference %.4f\n", computed, difference);
  return std::abs(computed - difference) < 0.01 * (1 + std::abs(difference)) ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
