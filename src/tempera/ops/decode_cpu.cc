#include "tempera/kernels/reference.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/problem.h"

namespace tempera::ops {
namespace {

at::Tensor host_int32(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, at::kInt).contiguous();
}

// The lengths fit the cache, and the blocks that they reach exist.
void check_cache(const at::Tensor& lengths, const at::Tensor& block_table,
                 const kernels::Shape& shape, const at::Tensor& k) {
  const int32_t* length = lengths.const_data_ptr<int32_t>();
  for (int64_t b = 0; b < shape.batch; ++b) {
    TEMPERA_CHECK(length[b] >= 0 && length[b] <= shape.kv_rows, "lengths: ", length[b],
                  " given for sequence ", b, ", 0 to ", shape.kv_rows,
                  " (the capacity of the cache) expected");
    if (!block_table.defined()) continue;
    const int32_t* blocks = block_table.const_data_ptr<int32_t>() + b * block_table.size(1);
    for (int64_t at = 0; at * k.size(2) < length[b]; ++at)
      TEMPERA_CHECK(blocks[at] >= 0 && blocks[at] < k.size(0), "block_table: block ", blocks[at],
                    " given as number ", at, " of sequence ", b, ", 0 to ", k.size(0) - 1,
                    " (the blocks of the cache) expected");
  }
}

template <class T>
class DecodeProblem {
 public:
  using R = kernels::Real<T>;

  DecodeProblem(const DecodeArgs& args, const kernels::Shape& shape)
      : lengths_(host_int32(args.lengths)) {
    if (args.block_table.defined()) block_table_ = host_int32(args.block_table);
    check_cache(lengths_, block_table_, shape, args.k);
    params_.attention.shape = shape;
    params_.lengths = lengths_.const_data_ptr<int32_t>();
    if (block_table_.defined()) {
      params_.block_table = block_table_.const_data_ptr<int32_t>();
      params_.table_stride = block_table_.size(1);
      params_.block_size = args.k.size(2);
    }
    bind_mask(args);
    bind_attention(args);
  }

  const kernels::DecodeParams<T>& params() const { return params_; }

 private:
  void bind_mask(const DecodeArgs& args) {
    const kernels::Shape& shape = params_.attention.shape;
    kernels::Mask& mask = params_.attention.mask;
    mask.causal = args.causal;
    mask.window = args.window.value_or(0);
    if (!args.key_start.defined()) return;
    const std::vector<int64_t> starts = host_numbers(args.key_start);
    for (int64_t b = 0; b < shape.batch; ++b) {
      const int64_t start = starts[static_cast<size_t>(b)];
      TEMPERA_CHECK(start >= 0 && start <= shape.kv_rows, "key_start: ", start,
                    " given for sequence ", b, ", 0 to ", shape.kv_rows,
                    " (the capacity of the cache) expected");
      key_begin_.insert(key_begin_.end(), static_cast<size_t>(shape.q_rows),
                        static_cast<int32_t>(start));
    }
    mask.key_begin = key_begin_.data();
  }

  void bind_attention(const DecodeArgs& args) {
    kernels::AttentionParams<T>& attention = params_.attention;
    const kernels::Shape& shape = attention.shape;
    const std::array<int64_t, 3> queries = {shape.batch, shape.q_heads, shape.q_rows};
    const std::array<int64_t, 3> keys = {args.k.size(0), shape.kv_heads, args.k.size(2)};
    attention.q = binder_.operand(args.q);
    attention.k = binder_.operand(args.k);
    attention.v = binder_.operand(args.v);
    attention.scale =
        static_cast<R>(args.scale.value_or(1 / std::sqrt(static_cast<double>(shape.qk_size))));
    if (args.q_recipe.g.defined()) count_visible();
    attention.q_scale = {binder_.row_scale("a_q", args.a_q, queries),
                         binder_.recipe(args.q_recipe, args.q, attention.q, log_n_.data())};
    attention.k_scale.rows = binder_.row_scale("a_k", args.a_k, keys);
    attention.v_scale.rows = binder_.row_scale("a_v", args.a_v, keys);
    attention.bias = binder_.bias(args.bias);
    attention.cap = static_cast<R>(args.cap);
    attention.post = binder_.row_scale("post", args.post, queries);
    attention.sinks = binder_.parameter(args.sinks);
  }

  void count_visible() {
    kernels::Shape shape = params_.attention.shape;
    kernels::Mask mask = params_.attention.mask;
    for (int64_t b = 0; b < shape.batch; ++b) {
      shape.kv_rows = params_.lengths[b];
      mask.query_offset = shape.kv_rows - shape.q_rows;
      for (int64_t i = 0; i < shape.q_rows; ++i) {
        const int64_t count = kernels::visible_keys(mask, shape, b, i).size();
        log_n_.push_back(
            static_cast<R>(std::log(static_cast<double>(std::max<int64_t>(count, 1)))));
      }
    }
  }

  Binder<T> binder_;
  at::Tensor lengths_, block_table_;
  std::vector<int32_t> key_begin_;
  std::vector<R> log_n_;
  kernels::DecodeParams<T> params_;
};

template <class T>
void run_decode(const kernels::DecodeParams<T>& params,
                const kernels::AttentionOutputs<T>& outputs) {
  if constexpr (std::is_same_v<T, double>) {
    kernels::reference::decode(params, outputs);
  } else {
    AtenParallel parallel;
    const at::Tensor workspace =
        byte_workspace(kernels::decode_workspace(params, parallel.workers()));
    kernels::decode(params, outputs, parallel, workspace.mutable_data_ptr());
  }
}

}  // namespace

AttentionResult decode_cpu(const DecodeArgs& args) {
  const Dims dims = check(args);
  const kernels::Shape shape = kernel_shape(dims);
  return with_element_type(args.q.scalar_type(), [&]<class T>(T) {
    const AttentionResult result = empty_result(args, dims);
    const DecodeProblem<T> problem(args, shape);
    if (shape.batch == 0 || shape.q_rows == 0 || shape.kv_rows == 0)
      fill_empty(result);
    else
      run_decode<T>(problem.params(), outputs_of<T>(result));
    return result;
  });
}

}  // namespace tempera::ops
