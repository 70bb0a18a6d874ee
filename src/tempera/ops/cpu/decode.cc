#include "tempera/kernels/reference/attention.h"
#include "tempera/ops/cpu/cpu.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/problem.h"

namespace tempera::ops {
namespace {

template <class T, class C>
class DecodeProblem {
 public:
  using R = kernels::Real<T>;

  DecodeProblem(const DecodeArgs& args, const kernels::Shape& shape)
      : cache_(host_cache(args, shape)) {
    params_.attention.shape = shape;
    params_.attention.mask = cache_.mask;
    params_.lengths = cache_.lengths.const_data_ptr<int32_t>();
    if (cache_.block_table.defined()) {
      params_.block_table = cache_.block_table.const_data_ptr<int32_t>();
      params_.table_stride = cache_.block_table.size(1);
      params_.block_size = args.k.size(2);
    }
    if (args.q_recipe.g.defined()) count_visible();
    bind_decode(binder_, args, log_n_.data(), params_.attention);
  }

  const kernels::DecodeParams<T, C>& params() const { return params_; }

 private:
  void count_visible() {
    for (const kernels::KeyRange& keys : visible_keys(cache_, params_.attention.shape))
      log_n_.push_back(
          static_cast<R>(std::log(static_cast<double>(std::max<int64_t>(keys.size(), 1)))));
  }

  Binder<T> binder_;
  HostCache cache_;
  std::vector<R> log_n_;
  kernels::DecodeParams<T, C> params_;
};

template <class T, class C>
void run_decode(const kernels::DecodeParams<T, C>& params,
                const kernels::AttentionOutputs<T>& outputs) {
  if constexpr (std::is_same_v<T, double>) {
    kernels::reference::decode(params, outputs);
  } else {
    AtenParallel parallel;
    const at::Tensor workspace =
        byte_workspace(kernels::decode_workspace(params, parallel.workers()), at::kCPU);
    kernels::decode(params, outputs, parallel, workspace.mutable_data_ptr());
  }
}

}  // namespace

AttentionResult Cpu::decode(const DecodeArgs& given) const {
  const Dims dims = check(given);
  const kernels::Shape shape = kernel_shape(dims);
  DecodeArgs args = given;
  if (args.q.scalar_type() == at::kDouble) {  // the reference reads no others
    args.k = args.k.to(at::kDouble);
    args.v = args.v.to(at::kDouble);
  }
  const AttentionResult result = empty_result(args, dims);
  with_element_type(args.q.scalar_type(), [&]<class T>(T) {
    with_cache_type<T>(args.k.scalar_type(), [&]<class C>(C) {
      const DecodeProblem<T, C> problem(args, shape);
      if (shape.batch == 0 || shape.q_rows == 0 || shape.kv_rows == 0)
        fill_empty(result);
      else
        run_decode(problem.params(), outputs_of<T>(result));
    });
  });
  return result;
}

}  // namespace tempera::ops
