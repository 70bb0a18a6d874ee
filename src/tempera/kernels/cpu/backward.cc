#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tempera/kernels/cpu/backward.cc"
#include "tempera/kernels/cpu/targets.h"
// Compiles the rest of this file once a target.
#include <hwy/foreach_target.h>

#include "tempera/kernels/cpu/backward-inl.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/kernels/cpu/plan.h"
#include "tempera/kernels/validate.h"

HWY_BEFORE_NAMESPACE();
namespace tempera::kernels::cpu::HWY_NAMESPACE {

template <class T>
class Backward {
 public:
  Backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
           const BackwardPlan& plan)
      : p_(params),
        g_(gradients),
        plan_(plan),
        group_(params.shape.q_heads / params.shape.kv_heads) {}

  void run(Parallel& parallel) const {
    if (g_.bias) {
      parallel.run(plan_.bias_batches * plan_.bias_heads, [&](int64_t task, int) {
        for (int64_t i = 0; i < p_.shape.q_rows; ++i)
          std::fill_n(g_.bias.at(task / plan_.bias_heads, task % plan_.bias_heads, i),
                      p_.shape.kv_rows, 0.0F);
      });
    }
    parallel.run(plan_.units() * plan_.splits, [&](int64_t task, int worker) {
      const BackwardScratch scratch = plan_.worker(worker);
      const int64_t unit = task / plan_.splits;
      for (int64_t pair = 0; pair < plan_.pairs_per_unit(); ++pair)
        one_part(plan_.pair(unit, pair), task % plan_.splits, scratch);
    });
    if (plan_.splits > 1) {
      parallel.run(p_.shape.batch * p_.shape.q_heads, [&](int64_t task, int worker) {
        finish_split_head(task / p_.shape.q_heads, task % p_.shape.q_heads, plan_.worker(worker));
      });
    }
  }

 private:
  void one_part(int64_t pair, int64_t split, const BackwardScratch& scratch) const {
    const Shape& s = p_.shape;
    const int64_t part_index = pair * plan_.splits + split;
    const bool own = plan_.splits == 1;
    BackwardPart part{pair / s.kv_heads,
                      pair % s.kv_heads,
                      split,
                      plan_.splits,
                      own ? scratch.d_queries : plan_.d_queries + part_index * plan_.d_queries_size,
                      own ? scratch.d_post : plan_.d_post + part_index * group_ * s.q_rows,
                      plan_.k_sums.start(part_index),
                      plan_.v_sums.start(part_index),
                      split == 0 ? plan_.sink_sums + pair * group_ : nullptr};
    BackwardTask<T>(p_, g_, scratch).run(part);
    if (!own) return;
    for (int64_t head = 0; head < group_; ++head) {
      const int64_t at = head * s.q_rows;
      const int64_t h = part.kv_head * group_ + head;
      QueryFinish<T>(p_, g_).run(
          part.batch, h, {part.d_queries + at * packed_stride(s.qk_size), 1, 0},
          {part.d_post + at, 1, 0}, scratch.q_scale.total + at, scratch.q_scale.tanh + at,
          plan_.q_sums.start(part.batch * s.q_heads + h));
    }
  }

  void finish_split_head(int64_t b, int64_t h, const BackwardScratch& scratch) const {
    const Shape& s = p_.shape;
    if (p_.q_scale.active())
      evaluate_scale(p_.q_scale, b, h, 0, s.q_rows, s.q_rows, scratch.q_scale, 0);
    const int64_t first_part = (b * s.kv_heads + h / group_) * plan_.splits;
    const int64_t at = h % group_ * s.q_rows;
    QueryFinish<T>(p_, g_).run(
        b, h,
        {plan_.d_queries + first_part * plan_.d_queries_size + at * packed_stride(s.qk_size),
         plan_.splits, plan_.d_queries_size},
        {plan_.d_post + first_part * group_ * s.q_rows + at, plan_.splits, group_ * s.q_rows},
        scratch.q_scale.total, scratch.q_scale.tanh, plan_.q_sums.start(b * s.q_heads + h));
  }

  const AttentionParams<T>& p_;
  const AttentionGradients<T>& g_;
  const BackwardPlan& plan_;
  const int64_t group_;
};

void backward_float(const AttentionParams<float>& params,
                    const AttentionGradients<float>& gradients, const BackwardPlan& plan,
                    Parallel& parallel) {
  Backward<float>(params, gradients, plan).run(parallel);
}
void backward_bfloat16(const AttentionParams<BFloat16>& params,
                       const AttentionGradients<BFloat16>& gradients, const BackwardPlan& plan,
                       Parallel& parallel) {
  Backward<BFloat16>(params, gradients, plan).run(parallel);
}

}  // namespace tempera::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tempera::kernels {
namespace cpu {
HWY_EXPORT(backward_float);
HWY_EXPORT(backward_bfloat16);

namespace {

// Adds the partial sums of a recipe's parameters over batch and splits, always in the same order.
void reduce_sums(const RecipeSums& sums, int64_t batch, int64_t heads, int64_t splits, int64_t size,
                 float* w, float* g, float* c, float* s) {
  if (!sums.data) return;
  for (int64_t h = 0; h < heads; ++h) {
    if (w) std::fill_n(w + h * size, size, 0.0F);
    RecipeScalars total{};
    for (int64_t part = 0; part < batch * splits; ++part) {
      float* from = sums.start((part / splits * heads + h) * splits + part % splits);
      if (w)
        for (int64_t i = 0; i < size; ++i) w[h * size + i] += from[i];
      const RecipeScalars& scalars = recipe_scalars(from, size);
      total.g += scalars.g;
      total.c += scalars.c;
      total.s += scalars.s;
    }
    if (g) g[h] = static_cast<float>(total.g);
    if (c) c[h] = static_cast<float>(total.c);
    if (s) s[h] = static_cast<float>(total.s);
  }
}

template <class T>
void reduce(const AttentionParams<T>& p, const AttentionGradients<T>& g, const BackwardPlan& plan) {
  const Shape& s = p.shape;
  const auto scale = [&](const RecipeSums& sums, int64_t heads, int64_t splits,
                         const Scale<T>& from, const ScaleGradient<T>& to) {
    reduce_sums(sums, s.batch, heads, splits, from.recipe.size, to.w, to.g, to.c, to.s);
  };
  scale(plan.q_sums, s.q_heads, 1, p.q_scale, g.q_scale);
  scale(plan.k_sums, s.kv_heads, plan.splits, p.k_scale, g.k_scale);
  scale(plan.v_sums, s.kv_heads, plan.splits, p.v_scale, g.v_scale);
  if (!g.sinks) return;
  std::fill_n(g.sinks, s.q_heads, 0.0F);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.q_heads; ++h) g.sinks[h] += plan.sink_sums[b * s.q_heads + h];
}

template <class T>
void clear(const AttentionParams<T>& p, const AttentionGradients<T>& g) {
  const Shape& s = p.shape;
  const auto scale = [](const Scale<T>& from, const ScaleGradient<T>& to, int64_t heads) {
    if (to.w) std::fill_n(to.w, heads * from.recipe.size, 0.0F);
    for (float* scalar : {to.g, to.c, to.s})
      if (scalar) std::fill_n(scalar, heads, 0.0F);
  };
  scale(p.q_scale, g.q_scale, s.q_heads);
  scale(p.k_scale, g.k_scale, s.kv_heads);
  scale(p.v_scale, g.v_scale, s.kv_heads);
  if (g.sinks) std::fill_n(g.sinks, s.q_heads, 0.0F);
  if (!g.bias) return;
  for (int64_t b = 0; b < (g.bias.batch == 0 ? 1 : s.batch); ++b)
    for (int64_t h = 0; h < (g.bias.head == 0 ? 1 : s.q_heads); ++h)
      for (int64_t i = 0; i < s.q_rows; ++i) std::fill_n(g.bias.at(b, h, i), s.kv_rows, 0.0F);
}

bool is_empty(const Shape& s) {
  return s.batch == 0 || s.q_heads == 0 || (s.q_rows == 0 && s.kv_rows == 0);
}

}  // namespace
}  // namespace cpu

template <class T>
size_t attention_backward_workspace(const AttentionParams<T>& params,
                                    const AttentionGradients<T>& gradients, int workers) {
  if (cpu::is_empty(params.shape)) return 0;
  cpu::Arena arena;
  cpu::BackwardPlan(arena, params, gradients, workers);
  return arena.used();
}

template <class T>
void attention_backward(const AttentionParams<T>& params, const AttentionGradients<T>& gradients,
                        Parallel& parallel, void* workspace) {
  validate(params, gradients);
  cpu::select_isa();
  if (cpu::is_empty(params.shape)) return cpu::clear(params, gradients);
  cpu::Arena arena(workspace);
  const cpu::BackwardPlan plan(arena, params, gradients, parallel.workers());
  plan.clear_sums();
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(cpu::backward_float)(params, gradients, plan, parallel);
  } else {
    HWY_DYNAMIC_DISPATCH(cpu::backward_bfloat16)(params, gradients, plan, parallel);
  }
  cpu::reduce(params, gradients, plan);
}

template size_t attention_backward_workspace(const AttentionParams<float>&,
                                             const AttentionGradients<float>&, int);
template size_t attention_backward_workspace(const AttentionParams<BFloat16>&,
                                             const AttentionGradients<BFloat16>&, int);
template void attention_backward(const AttentionParams<float>&, const AttentionGradients<float>&,
                                 Parallel&, void*);
template void attention_backward(const AttentionParams<BFloat16>&,
                                 const AttentionGradients<BFloat16>&, Parallel&, void*);

}  // namespace tempera::kernels
#endif  // HWY_ONCE
