#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/attention.h"
#include "tempera/kernels/mask.h"
#include "tempera/ops/host_mask.h"
#include "tempera/ops/meta.h"

// From tensors to the kernels' pointers and strides.
namespace tempera::ops {

template <class T>
inline constexpr at::ScalarType kScalarType = at::kFloat;
template <>
inline constexpr at::ScalarType kScalarType<double> = at::kDouble;
template <>
inline constexpr at::ScalarType kScalarType<kernels::BFloat16> = at::kBFloat16;
template <>
inline constexpr at::ScalarType kScalarType<int32_t> = at::kInt;
template <>
inline constexpr at::ScalarType kScalarType<int8_t> = at::kChar;

// Calls f with a value of the kernels' element type.
template <class F>
auto with_element_type(at::ScalarType type, F&& f) {
  switch (type) {
    case at::kDouble:
      return f(double{});
    case at::kFloat:
      return f(float{});
    case at::kBFloat16:
      return f(kernels::BFloat16{});
    default:
      throw Error(concat("q, k, v: dtype ", type,
                         " given, float32, bfloat16 or float64 expected; convert them"));
  }
}

// Calls f with a value of the element type of a cache that kernels for T read.
template <class T, class F>
auto with_cache_type(at::ScalarType type, F&& f) {
  if (type == kScalarType<T>) return f(T{});
  if constexpr (std::is_same_v<T, float>)
    if (type == at::kBFloat16) return f(kernels::BFloat16{});
  if constexpr (!std::is_same_v<T, double>)
    if (type == at::kChar) return f(int8_t{});
  throw Error(concat("k, v: a cache of ", type, " beside queries of ", kScalarType<T>));
}

inline kernels::Shape kernel_shape(const Dims& dims) {
  return {.batch = dims.batch.expect_int(),
          .q_heads = dims.q_heads.expect_int(),
          .kv_heads = dims.kv_heads.expect_int(),
          .q_rows = dims.q_rows.expect_int(),
          .kv_rows = dims.kv_rows.expect_int(),
          .qk_size = dims.qk_size.expect_int(),
          .v_size = dims.v_size.expect_int()};
}

// The columns of a row must be contiguous; a single column always is.
inline at::Tensor contiguous_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) == 1 ? tensor : tensor.contiguous();
}

// Strides of (batch, head, row, ...); a dimension of size 1 gets 0, so that it broadcasts.
template <class T>
kernels::Rows<T> rows_of(const at::Tensor& tensor) {
  const auto stride = [&](int64_t dim) { return tensor.size(dim) == 1 ? 0 : tensor.stride(dim); };
  void* data = nullptr;
  if constexpr (std::is_const_v<T>)
    data = const_cast<void*>(tensor.const_data_ptr());
  else
    data = tensor.mutable_data_ptr();
  return {static_cast<T*>(data), stride(0), stride(1), stride(2)};
}

template <class R>
void check_finite(const char* name, const at::Tensor& numbers) {
  const R* data = numbers.const_data_ptr<R>();
  bool finite = true;
  for (int64_t i = 0; i < numbers.numel(); ++i) finite &= data[i] - data[i] == R{0};
  TEMPERA_CHECK(finite, name, ": NaN or infinite numbers given, finite ones expected");
}

// Turns tensors into kernel arguments and keeps alive what had to be converted.
template <class T>
class Binder {
 public:
  using R = kernels::Real<T>;

  const at::Tensor& keep(at::Tensor tensor) { return kept_.emplace_back(std::move(tensor)); }

  template <class E = T>
  kernels::Rows<const E> operand(const at::Tensor& tensor) {
    return rows_of<const E>(keep(contiguous_rows(tensor)));
  }

  // One number a row, broadcast to `sizes`.
  kernels::Rows<const R> row_scale(const char* name, const at::Tensor& tensor,
                                   at::IntArrayRef sizes) {
    const auto rows = unchecked_row_scale(tensor, sizes);
    // Elsewhere it would wait for the device.
    if (rows && kept_.back().is_cpu()) check_finite<R>(name, kept_.back());
    return rows;
  }

  kernels::Rows<const R> unchecked_row_scale(const at::Tensor& tensor, at::IntArrayRef sizes) {
    if (!tensor.defined()) return {};
    return rows_of<const R>(keep(tensor.to(kScalarType<R>).contiguous()).expand(sizes));
  }

  const R* parameter(const at::Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    return keep(tensor.to(kScalarType<R>).contiguous()).template const_data_ptr<R>();
  }

  // Numbers made on the host, where a kernel for `like` reads them. The vector has to live as long.
  template <class E>
  const E* place(const std::vector<E>& numbers, const at::Tensor& like) {
    if (like.is_cpu() || numbers.empty()) return numbers.data();
    const at::Tensor host = at::from_blob(const_cast<E*>(numbers.data()),
                                          {static_cast<int64_t>(numbers.size())}, kScalarType<E>);
    return keep(host.to(like.device())).template const_data_ptr<E>();
  }

  kernels::Rows<const R> bias(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    return rows_of<const R>(keep(contiguous_rows(tensor.to(kScalarType<R>))));
  }

  kernels::Recipe<T> recipe(const Recipe& recipe, const at::Tensor& operand_tensor,
                            const kernels::Rows<const T>& operand_rows, const R* log_n) {
    kernels::Recipe<T> bound;
    bound.w = parameter(recipe.w);
    bound.g = parameter(recipe.g);
    bound.c = parameter(recipe.c);
    bound.s = parameter(recipe.s);
    bound.log_n = bound.g ? log_n : nullptr;
    if (!bound.w) return bound;
    bound.size = (recipe.source.defined() ? recipe.source : operand_tensor).size(3);
    bound.source = recipe.source.defined() ? operand(recipe.source) : operand_rows;
    // Kernels know a recipe that reads its operand by the pointer. A source that was named is an
    // input of its own, with a gradient of its own.
    if (recipe.source.defined() && bound.source.data == operand_rows.data)
      bound.source = operand(recipe.source.clone(at::MemoryFormat::Contiguous));
    return bound;
  }

 private:
  std::vector<at::Tensor> kept_;
};

// All of a decode but the cache's lengths and blocks and the mask. attention.shape is set; log_n:
// of the queries, where their recipe counts.
template <class T, class C>
void bind_decode(Binder<T>& binder, const DecodeArgs& args, const kernels::Real<T>* log_n,
                 kernels::AttentionParams<T, C>& attention) {
  using R = kernels::Real<T>;
  const kernels::Shape& shape = attention.shape;
  const std::array<int64_t, 3> queries = {shape.batch, shape.q_heads, shape.q_rows};
  const std::array<int64_t, 3> keys = {args.k.size(0), shape.kv_heads, args.k.size(2)};
  attention.q = binder.operand(args.q);
  attention.k = binder.template operand<C>(args.k);
  attention.v = binder.template operand<C>(args.v);
  attention.scale =
      static_cast<R>(args.scale.value_or(1 / std::sqrt(static_cast<double>(shape.qk_size))));
  attention.q_scale = {binder.row_scale("a_q", args.a_q, queries),
                       binder.recipe(args.q_recipe, args.q, attention.q, log_n)};
  // Beside whole numbers they are a part of the keys and values, which nobody checks, either.
  const auto key_scale = [&](const char* name, const at::Tensor& scale) {
    return std::is_same_v<C, int8_t> ? binder.unchecked_row_scale(scale, keys)
                                     : binder.row_scale(name, scale, keys);
  };
  attention.k_scale.rows = key_scale("a_k", args.a_k);
  attention.v_scale.rows = key_scale("a_v", args.a_v);
  attention.bias = binder.bias(args.bias);
  attention.cap = static_cast<R>(args.cap);
  attention.post = binder.row_scale("post", args.post, queries);
  attention.sinks = binder.parameter(args.sinks);
}

template <class T>
kernels::AttentionOutputs<T> outputs_of(const AttentionResult& result) {
  using R = kernels::Real<T>;
  const auto rows = [](const at::Tensor& tensor) {
    return tensor.defined() ? rows_of<R>(tensor) : kernels::Rows<R>{};
  };
  return {.out = rows_of<T>(result.out),
          .lse = rows(result.lse),
          .max = rows(result.max),
          .entropy = rows(result.entropy),
          .head_max = result.head_max.defined() ? result.head_max.mutable_data_ptr<R>() : nullptr};
}

// torch's allocator aligns to 64 bytes, as the kernels ask.
inline at::Tensor byte_workspace(size_t bytes, const at::Device& device) {
  return at::empty({static_cast<int64_t>(bytes)},
                   at::TensorOptions().dtype(at::kByte).device(device));
}

// log max(n, 1) of given counts.
template <class R>
std::vector<R> log_counts(const at::Tensor& counts) {
  std::vector<R> logs;
  for (const int64_t count : host_numbers(counts))
    logs.push_back(static_cast<R>(std::log(static_cast<double>(std::max<int64_t>(count, 1)))));
  return logs;
}

}  // namespace tempera::ops
