#pragma once

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tempera/ops/problem.h"

// The arguments of attention and its gradients as the kernels take them, on any device.
namespace tempera::ops {

inline bool is_empty(const kernels::Shape& shape) {
  return shape.batch == 0 || shape.q_rows == 0 || shape.kv_rows == 0;
}

// The parameters of one attention and all that they point at, where q lies.
template <class T>
class AttentionProblem {
 public:
  using R = kernels::Real<T>;

  AttentionProblem(const AttentionArgs& args, const kernels::Shape& shape)
      : mask_(host_mask(args, shape)) {
    params_.shape = shape;
    params_.mask = mask_.mask;
    params_.q = binder_.operand(args.q);
    params_.k = binder_.operand(args.k);
    params_.v = binder_.operand(args.v);
    params_.scale =
        static_cast<R>(args.scale.value_or(1 / std::sqrt(static_cast<double>(shape.qk_size))));
    bind_scales(args);
    if (mask_.mask.key_begin) params_.mask.key_begin = binder_.place(mask_.ranges.begin, args.q);
    if (mask_.mask.key_end) params_.mask.key_end = binder_.place(mask_.ranges.end, args.q);
    params_.bias = binder_.bias(args.bias);
    params_.cap = static_cast<R>(args.cap);
    params_.post = binder_.row_scale("post", args.post, {shape.batch, shape.q_heads, shape.q_rows});
    params_.sinks = binder_.parameter(args.sinks);
    params_.dropout = static_cast<R>(args.dropout);
    params_.seed = static_cast<uint64_t>(args.seed);
  }

  const kernels::AttentionParams<T>& params() const { return params_; }

 private:
  void bind_scales(const AttentionArgs& args) {
    const kernels::Shape& shape = params_.shape;
    const bool key_log_n = args.k_recipe.g.defined() || args.v_recipe.g.defined();
    const bool own_counts = args.key_counts.defined();
    if (args.q_recipe.g.defined() || (key_log_n && !own_counts))
      query_log_n_ = kernels::log_visible_counts<R>(params_.mask, shape);
    if (key_log_n && own_counts) key_log_n_ = log_counts<R>(args.key_counts);
    const R* queries = binder_.place(query_log_n_, args.q);
    // Without counts of their own, keys are the rows of the queries: self-attention.
    const R* keys = own_counts ? binder_.place(key_log_n_, args.q) : queries;
    params_.q_scale = {
        binder_.row_scale("a_q", args.a_q, {shape.batch, shape.q_heads, shape.q_rows}),
        binder_.recipe(args.q_recipe, args.q, params_.q, queries)};
    const std::array<int64_t, 3> key_rows = {shape.batch, shape.kv_heads, shape.kv_rows};
    params_.k_scale = {binder_.row_scale("a_k", args.a_k, key_rows),
                       binder_.recipe(args.k_recipe, args.k, params_.k, keys)};
    params_.v_scale = {binder_.row_scale("a_v", args.a_v, key_rows),
                       binder_.recipe(args.v_recipe, args.v, params_.v, keys)};
  }

  Binder<T> binder_;
  HostMask mask_;
  std::vector<R> query_log_n_, key_log_n_;
  kernels::AttentionParams<T> params_;
};

// The gradients while they are computed: what kernels write, and what becomes of it.
template <class T>
class GradientBuffers {
 public:
  using R = kernels::Real<T>;

  GradientBuffers(const BackwardArgs& args, const kernels::Shape& shape)
      : results_(empty_gradients(args)), buffers_(results_) {
    const std::array<int64_t, 3> queries = {shape.batch, shape.q_heads, shape.q_rows};
    const std::array<int64_t, 3> keys = {shape.batch, shape.kv_heads, shape.kv_rows};
    size_t next = 0;
    const auto rows = [&] { return take<T>(next++); };
    const auto scale = [&](at::IntArrayRef sizes) {
      expand(next, sizes);
      return take<R>(next++);
    };
    const auto numbers = [&] { return parameter(next++); };
    gradients.q = rows();
    gradients.k = rows();
    gradients.v = rows();
    gradients.q_scale.rows = scale(queries);
    gradients.k_scale.rows = scale(keys);
    gradients.v_scale.rows = scale(keys);
    for (kernels::ScaleGradient<T>* recipe :
         {&gradients.q_scale, &gradients.k_scale, &gradients.v_scale}) {
      recipe->source = rows();
      recipe->w = numbers();
      recipe->g = numbers();
      recipe->c = numbers();
      recipe->s = numbers();
    }
    real(next);
    gradients.bias = take<R>(next++);
    gradients.sinks = numbers();
    gradients.post = scale(queries);
  }

  kernels::AttentionGradients<T> gradients;

  // Sums what was broadcast and converts to the dtypes of the inputs.
  std::vector<at::Tensor> finish() {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].defined()) continue;
      if (!buffers_[i].sizes().equals(results_[i].sizes()))
        buffers_[i] = at::sum_to(buffers_[i], results_[i].sizes());
      results_[i] = buffers_[i].to(results_[i].scalar_type());
    }
    return std::move(results_);
  }

 private:
  template <class E>
  kernels::Rows<E> take(size_t i) const {
    return buffers_[i].defined() ? rows_of<E>(buffers_[i]) : kernels::Rows<E>{};
  }

  void real(size_t i) {
    if (buffers_[i].defined() && buffers_[i].scalar_type() != kScalarType<R>)
      buffers_[i] = at::empty_like(buffers_[i], at::TensorOptions().dtype(kScalarType<R>));
  }

  R* parameter(size_t i) {
    real(i);
    return buffers_[i].defined() ? buffers_[i].template mutable_data_ptr<R>() : nullptr;
  }

  // Kernels write one number a row; finish() sums them where the scale was broadcast.
  void expand(size_t i, at::IntArrayRef sizes) {
    if (buffers_[i].defined())
      buffers_[i] = at::empty(sizes, buffers_[i].options().dtype(kScalarType<R>));
  }

  std::vector<at::Tensor> results_;
  std::vector<at::Tensor> buffers_;
};

// run(params, outputs) for the element type of q.
template <class Run>
AttentionResult attention_with(const AttentionArgs& args, const Run& run) {
  const Dims dims = check(args);
  const kernels::Shape shape = kernel_shape(dims);
  return with_element_type(args.q.scalar_type(), [&]<class T>(T) {
    const AttentionResult result = empty_result(args, dims);
    const AttentionProblem<T> problem(args, shape);
    if (is_empty(shape))
      fill_empty(result);
    else
      run(problem.params(), outputs_of<T>(result));
    return result;
  });
}

// run(params, gradients) for the element type of q.
template <class Run>
std::vector<at::Tensor> attention_backward_with(const BackwardArgs& args, const Run& run) {
  const kernels::Shape shape = kernel_shape(check(args.inputs));
  if (is_empty(shape)) {
    std::vector<at::Tensor> gradients = empty_gradients(args);
    for (const at::Tensor& gradient : gradients)
      if (gradient.defined()) gradient.zero_();
    return gradients;
  }
  return with_element_type(args.inputs.q.scalar_type(), [&]<class T>(T) {
    using R = kernels::Real<T>;
    const AttentionProblem<T> problem(args.inputs, shape);
    GradientBuffers<T> buffers(args, shape);
    Binder<T> binder;
    kernels::AttentionGradients<T>& gradients = buffers.gradients;
    gradients.out = binder.operand(args.out);
    gradients.lse = rows_of<const R>(args.lse);
    gradients.d_out = binder.operand(args.d_out.defined() ? args.d_out : at::zeros_like(args.out));
    if (args.d_lse.defined()) gradients.d_lse = rows_of<const R>(args.d_lse);
    run(problem.params(), gradients);
    return buffers.finish();
  });
}

}  // namespace tempera::ops
