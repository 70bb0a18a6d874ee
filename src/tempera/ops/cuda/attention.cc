#include "tempera/kernels/cuda/attention.h"

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>

#include "tempera/ops/attention_problem.h"
#include "tempera/ops/cuda/backend.h"
#include "tempera/ops/cuda/stream.h"

namespace tempera::ops::cuda {
namespace {

[[noreturn]] void refuse_double() {
  throw Error("the CUDA kernels have no double precision; compute on the CPU");
}

// n of the new rows (B, rows): how many keys each sees.
at::Tensor visible_counts(const DecodeArgs& args, const at::Tensor& lengths, int64_t rows) {
  const at::Tensor length = lengths.to(at::kLong).unsqueeze(1);
  const at::Tensor position = length - rows + at::arange(rows, length.options());
  at::Tensor end = args.causal ? at::minimum(length, position + 1) : length.expand_as(position);
  at::Tensor begin = at::zeros_like(position);
  if (args.key_start.defined()) begin = begin + args.key_start.to(length.options()).unsqueeze(1);
  if (args.window) {
    begin = at::maximum(begin, position - *args.window + 1);
    end = at::minimum(end, position + *args.window);
  }
  return (end - begin).clamp_min(1);
}

// Lengths and blocks stay on the GPU: reading them would wait for it. The kernel cuts lengths to
// the capacity; an entry of the table that names no block names the nearest.
template <class T>
class CudaDecodeProblem {
 public:
  CudaDecodeProblem(const DecodeArgs& args, const kernels::Shape& shape) {
    const auto device = args.q.device();
    params_.attention.shape = shape;
    const at::Tensor lengths =
        binder_.keep(args.lengths.to(device, at::kInt).clamp(0, shape.kv_rows).contiguous());
    params_.lengths = lengths.const_data_ptr<int32_t>();
    if (args.block_table.defined()) {
      const at::Tensor& table = binder_.keep(
          args.block_table.to(device, at::kInt).clamp(0, args.k.size(0) - 1).contiguous());
      params_.block_table = table.const_data_ptr<int32_t>();
      params_.table_stride = table.size(1);
      params_.block_size = args.k.size(2);
    }
    set_mask(args);
    const float* log_n = nullptr;
    if (args.q_recipe.g.defined())
      log_n = binder_.keep(visible_counts(args, lengths, shape.q_rows).to(at::kFloat).log())
                  .template const_data_ptr<float>();
    bind_decode(binder_, args, log_n, params_.attention);
  }

  const kernels::DecodeParams<T>& params() const { return params_; }

 private:
  void set_mask(const DecodeArgs& args) {
    kernels::AttentionParams<T>& attention = params_.attention;
    attention.mask.causal = args.causal;
    attention.mask.window = args.window.value_or(0);
    if (!args.key_start.defined()) return;
    attention.mask.key_begin =
        binder_
            .keep(args.key_start.to(args.q.device(), at::kInt)
                      .unsqueeze(1)
                      .expand({attention.shape.batch, attention.shape.q_rows})
                      .contiguous())
            .template const_data_ptr<int32_t>();
  }

  Binder<T> binder_;
  kernels::DecodeParams<T> params_;
};

}  // namespace

bool prefers_cudnn(const at::Tensor& x) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.device().index()) ==
             cudaSuccess &&
         major >= 9;
}

bool Cuda::has_kernel(const AttentionArgs& args) const { return !is_plain(args) && fits(args); }

// cuDNN's kernels are the fastest on Hopper and later, and libtorch does not choose them by itself.
// Then flash attention, where the call surely has it: only it knows groups of heads.
at::Tensor Cuda::plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 bool causal, std::optional<double> scale) const {
  const int64_t size = q.size(3);
  if (q.scalar_type() != at::kBFloat16 || size != v.size(3) || size % 8 != 0 || size > 256)
    return Composed::plain_attention(q, k, v, causal, scale);
  const bool grouped = q.size(1) != k.size(1);
  if (!grouped && size <= 128 && q.size(2) > 1 && at::globalContext().userEnabledCuDNNSDP() &&
      prefers_cudnn(q))
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(
        q, k, v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0, causal,
        /*return_debug_mask=*/false, scale));
  return at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0, causal, scale, grouped);
}

AttentionResult Cuda::attention_forward(const AttentionArgs& args) const {
  if (!has_kernel(args)) return Composed::attention(args);
  return attention_with(args, [&]<class T>(const kernels::AttentionParams<T>& params,
                                           const kernels::AttentionOutputs<T>& outputs) {
    if constexpr (std::is_same_v<T, double>) {
      refuse_double();
    } else {
      const at::Tensor workspace =
          byte_workspace(kernels::cuda::attention_forward_workspace(params), args.q.device());
      kernels::cuda::attention_forward(params, outputs, workspace.mutable_data_ptr(),
                                       stream_of(args.q));
    }
  });
}

std::vector<at::Tensor> Cuda::attention_backward(const BackwardArgs& args) const {
  return attention_backward_with(args, [&]<class T>(
                                           const kernels::AttentionParams<T>& params,
                                           const kernels::AttentionGradients<T>& gradients) {
    if constexpr (std::is_same_v<T, double>) {
      refuse_double();
    } else {
      const at::Tensor workspace = byte_workspace(
          kernels::cuda::attention_backward_workspace(params, gradients), args.inputs.q.device());
      kernels::cuda::attention_backward(params, gradients, workspace.mutable_data_ptr(),
                                        stream_of(args.inputs.q));
    }
  });
}

AttentionResult Cuda::decode(const DecodeArgs& args) const {
  if (!fits(args)) return Composed::decode(args);
  const Dims dims = check(args);
  const kernels::Shape shape = kernel_shape(dims);
  return with_element_type(args.q.scalar_type(), [&]<class T>(T) -> AttentionResult {
    if constexpr (std::is_same_v<T, double>) {
      refuse_double();
    } else {
      const AttentionResult result = empty_result(args, dims);
      if (is_empty(shape)) {
        fill_empty(result);
        return result;
      }
      const CudaDecodeProblem<T> problem(args, shape);
      const at::Tensor workspace =
          byte_workspace(kernels::cuda::decode_workspace(problem.params()), args.q.device());
      kernels::cuda::decode(problem.params(), outputs_of<T>(result), workspace.mutable_data_ptr(),
                            stream_of(args.q));
      return result;
    }
  });
}

}  // namespace tempera::ops::cuda
