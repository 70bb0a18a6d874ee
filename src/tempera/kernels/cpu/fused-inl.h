// Passes over rows between the matrix products.
#if defined(TEMPERA_KERNELS_CPU_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPERA_KERNELS_CPU_FUSED_INL_H_
#undef TEMPERA_KERNELS_CPU_FUSED_INL_H_
#else
#define TEMPERA_KERNELS_CPU_FUSED_INL_H_
#endif

#include "tempera/kernels/cpu/rows-inl.h"
#include "tempera/kernels/fused.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

// Calls body(column, columns left) for every vector of a row.
template <class Body>
HWY_INLINE void for_vectors(int64_t size, const Body& body) {
  for (int64_t c = 0; c < size; c += kLanes) body(c, size - c);
}

// A part of work that is worth a task: some rows, always the same ones.
struct RowTasks {
  int64_t rows;
  int64_t step;

  static RowTasks of(int64_t rows, int64_t elements_a_row) {
    return {rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(elements_a_row, 1))};
  }
  template <class Body>
  void run(Parallel& parallel, const Body& body) const {
    parallel.run((rows + step - 1) / step, [&](int64_t task, int) {
      for (int64_t row = task * step; row < std::min(rows, (task + 1) * step); ++row) body(row);
    });
  }
};

template <class T>
HWY_INLINE void norm_row(const NormParams<T>& p, const NormOutputs<T>& out, int64_t row) {
  const T* x = p.x + row * p.size;
  if (p.residual) {
    const T* residual = p.residual + row * p.size;
    T* h = out.h + row * p.size;
    for_vectors(p.size, [&](int64_t c, int64_t left) {
      store_some(hn::Add(load_some(x + c, left), load_some(residual + c, left)), h + c, left);
    });
    x = h;  // as stored, so that the backward pass sees the same numbers
  }
  const float size = static_cast<float>(p.size);
  float centre = 0;
  if (p.centred) {
    Vec sum = hn::Zero(F32());
    for_vectors(p.size,
                [&](int64_t c, int64_t left) { sum = hn::Add(sum, load_some(x + c, left)); });
    centre = out.mean[row] = sum_lanes(sum) / size;
  }
  Vec squares = hn::Zero(F32());
  for (int64_t c = 0; c < p.size; c += kLanes) {
    const int64_t left = p.size - c;
    Vec v = hn::Sub(load_some(x + c, left), set(centre));
    if (left < kLanes) v = hn::IfThenElseZero(inside(0, 0, left), v);
    squares = hn::MulAdd(v, v, squares);
  }
  const float r = out.rstd[row] = 1 / std::sqrt(sum_lanes(squares) / size + p.epsilon);
  for_vectors(p.size, [&](int64_t c, int64_t left) {
    Vec v = hn::Mul(hn::Sub(load_some(x + c, left), set(centre)), set(r));
    if (p.gain) v = hn::Mul(v, load_some(p.gain + c, left));
    if (p.bias) v = hn::Add(v, load_some(p.bias + c, left));
    store_some(v, out.y + row * p.size + c, left);
  });
}

// d_gain and d_bias are padded to kAlign and added to.
template <class T>
HWY_INLINE void norm_backward_row(const NormParams<T>& p, const NormGradients<T>& g, int64_t row,
                                  float* d_gain, float* d_bias) {
  const T* x = p.x + row * p.size;
  const T* d_y = g.d_y + row * p.size;
  const float mean = p.centred ? g.mean[row] : 0.0F, rstd = g.rstd[row];
  const auto normed = [&](int64_t c, int64_t left) {
    return hn::Mul(hn::Sub(load_some(x + c, left), set(mean)), set(rstd));
  };
  const auto gained = [&](Vec d, int64_t c, int64_t left) {
    return p.gain ? hn::Mul(d, load_some(p.gain + c, left)) : d;
  };
  Vec along = hn::Zero(F32()), sum = hn::Zero(F32());
  for_vectors(p.size, [&](int64_t c, int64_t left) {
    const Vec d = load_some(d_y + c, left);  // 0 behind the end
    const Vec n = normed(c, left);
    store(hn::MulAdd(d, n, load(d_gain + c)), d_gain + c);
    store(hn::Add(d, load(d_bias + c)), d_bias + c);
    const Vec inner = gained(d, c, left);
    along = hn::MulAdd(inner, n, along);
    sum = hn::Add(sum, inner);
  });
  const float size = static_cast<float>(p.size);
  const Vec mean_along = set(sum_lanes(along) / size);
  const Vec mean_sum = set(p.centred ? sum_lanes(sum) / size : 0.0F);
  for_vectors(p.size, [&](int64_t c, int64_t left) {
    const Vec inner = gained(load_some(d_y + c, left), c, left);
    Vec d = hn::Sub(hn::NegMulAdd(normed(c, left), mean_along, inner), mean_sum);
    d = hn::Mul(d, set(rstd));
    if (g.d_h) d = hn::Add(d, load_some(g.d_h + row * p.size + c, left));
    store_some(d, g.d_x + row * p.size + c, left);
  });
}

HWY_INLINE Vec sigmoid(Vec x) {
  // For large -x the exponential is capped below infinity and the quotient is 0 to rounding.
  const Vec e = exp2(hn::Min(hn::Mul(x, set(-kLog2E)), set(126.0F)));
  return hn::Div(set(1.0F), hn::Add(set(1.0F), e));
}

template <class T>
HWY_INLINE void swiglu_row(int64_t size, const T* gate_up, T* y) {
  for_vectors(size, [&](int64_t c, int64_t left) {
    const Vec gate = load_some(gate_up + c, left);
    const Vec up = load_some(gate_up + size + c, left);
    store_some(hn::Mul(hn::Mul(gate, sigmoid(gate)), up), y + c, left);
  });
}

template <class T>
HWY_INLINE void swiglu_backward_row(int64_t size, const T* gate_up, const T* d_y, T* d_gate_up) {
  for_vectors(size, [&](int64_t c, int64_t left) {
    const Vec gate = load_some(gate_up + c, left);
    const Vec up = load_some(gate_up + size + c, left);
    const Vec d = load_some(d_y + c, left);
    const Vec s = sigmoid(gate);
    const Vec silu = hn::Mul(gate, s);
    // silu' = s + silu (1 - s)
    const Vec slope = hn::MulAdd(silu, hn::Sub(set(1.0F), s), s);
    store_some(hn::Mul(hn::Mul(d, up), slope), d_gate_up + c, left);
    store_some(hn::Mul(d, silu), d_gate_up + size + c, left);
  });
}

template <class T>
HWY_INLINE void rotary_row(const RotaryParams<T>& p, int64_t b, int64_t h, int64_t r) {
  const T* x = p.x.at(b, h, r);
  T* y = p.y.at(b, h, r);
  const int64_t angle = (p.table_row ? p.table_row[b * p.rows + r] : r) * p.pairs;
  const float sign = p.inverse ? -1.0F : 1.0F;
  for_vectors(p.pairs, [&](int64_t c, int64_t left) {
    const Vec cosine = load_some(p.cos + angle + c, left);
    const Vec sine = hn::Mul(set(sign), load_some(p.sin + angle + c, left));
    const Vec first = load_some(x + c, left);
    const Vec second = load_some(x + p.pairs + c, left);
    store_some(hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), y + c, left);
    store_some(hn::MulAdd(first, sine, hn::Mul(second, cosine)), y + p.pairs + c, left);
  });
  for (int64_t c = 2 * p.pairs; c < p.size; ++c) y[c] = x[c];
}

template <class T>
HWY_INLINE void quantize_row(const QuantizeParams<T>& p, int64_t b, int64_t h, int64_t row) {
  const T* x = p.x.at(b, h, row);
  Vec largest = hn::Zero(F32()), zero = hn::Zero(F32());
  for_vectors(p.size, [&](int64_t c, int64_t left) {
    const Vec v = load_some(x + c, left);
    largest = hn::Max(largest, hn::Abs(v));
    zero = hn::Add(zero, hn::Sub(v, v));  // a NaN where v is not finite, which Max may drop
  });
  const float most = max_lanes(largest);
  *p.factor.at(b, h, row) = most / 127 + sum_lanes(zero);
  const Vec inverse = set(most > 0 ? 127 / most : 0.0F);
  int8_t* y = p.y.at(b, h, row);
  for_vectors(p.size, [&](int64_t c, int64_t left) {
    store_some(hn::Mul(load_some(x + c, left), inverse), y + c, left);
  });
}

template <class T>
HWY_INLINE void cross_entropy_row(const CrossEntropyParams<T>& p, int64_t row) {
  T* logits = p.logits + row * p.classes;
  const int64_t target = p.targets[row];
  if (target < 0) {
    p.loss[row] = 0;
    if (p.gradient)
      for_vectors(p.classes,
                  [&](int64_t c, int64_t left) { store_some(hn::Zero(F32()), logits + c, left); });
    return;
  }
  Vec largest = set(-kInfinity);
  Vec total = hn::Zero(F32());
  const auto logit = [&](int64_t c, int64_t left) {
    const Vec x = load_some(logits + c, left);
    return left < kLanes ? hn::IfThenElse(inside(0, 0, left), x, set(-kInfinity)) : x;
  };
  for_vectors(p.classes, [&](int64_t c, int64_t left) {
    largest = hn::Max(largest, logit(c, left));
    total = hn::Add(total, load_some(logits + c, left));
  });
  const float max = max_lanes(largest);
  Vec sum = hn::Zero(F32());
  for_vectors(p.classes, [&](int64_t c, int64_t left) {
    sum = hn::Add(sum, exp(hn::Sub(logit(c, left), set(max))));
  });
  const float classes = static_cast<float>(p.classes);
  const float lse = max + std::log(sum_lanes(sum));
  const float wanted = to_float(logits[target]);
  p.loss[row] =
      (1 - p.smoothing) * (lse - wanted) + p.smoothing * (lse - sum_lanes(total) / classes);
  if (!p.gradient) return;
  const Vec flat = set(p.smoothing / classes);
  for_vectors(p.classes, [&](int64_t c, int64_t left) {
    const Vec probability = exp(hn::Sub(logit(c, left), set(lse)));
    store_some(hn::Mul(set(p.factor), hn::Sub(probability, flat)), logits + c, left);
  });
  // In float, before the target's own share is stored: a bf16 value would lose it.
  const float probability = std::exp(wanted - lse);
  from_float(p.factor * (probability - p.smoothing / classes - (1 - p.smoothing)), logits + target);
}

HWY_INLINE void adamw_range(const AdamWParams& p, int64_t from, int64_t to) {
  const Vec beta1 = set(p.beta1), beta2 = set(p.beta2);
  const Vec shrink = set(1 - p.rate * p.decay);
  const Vec step = set(-p.rate / p.correction1);
  const Vec root = set(1 / std::sqrt(p.correction2));
  for (int64_t i = from; i < to; i += kLanes) {
    const int64_t left = to - i;
    const Vec g = hn::Mul(set(p.gradient_factor), load_some(p.gradient + i, left));
    const Vec mean = hn::MulAdd(beta1, hn::Sub(load_some(p.mean + i, left), g), g);
    const Vec square_before = load_some(p.square + i, left);
    const Vec g2 = hn::Mul(g, g);
    const Vec square = hn::MulAdd(beta2, hn::Sub(square_before, g2), g2);
    const Vec scale = hn::MulAdd(hn::Sqrt(square), root, set(p.epsilon));
    const Vec value = hn::Mul(load_some(p.value + i, left), shrink);
    store_some(hn::MulAdd(step, hn::Div(mean, scale), value), p.value + i, left);
    store_some(mean, p.mean + i, left);
    store_some(square, p.square + i, left);
  }
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
