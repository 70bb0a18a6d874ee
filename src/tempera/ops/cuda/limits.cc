#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>

#include <iostream>
#include <map>
#include <mutex>
#include <set>

#include "tempera/kernels/cuda/attention.h"
#include "tempera/kernels/cuda/device_limits.h"
#include "tempera/ops/cuda/backend.h"
#include "tempera/ops/problem.h"

namespace tempera::ops::cuda {
namespace {

using kernels::cuda::DeviceLimits;

void say_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) std::cerr << line << std::endl;
}

const DeviceLimits& limits_of(at::Device device) {
  static std::mutex mutex;
  static std::map<int, DeviceLimits> known;
  const int index = device.has_index() ? device.index() : c10::cuda::current_device();
  const std::lock_guard lock(mutex);
  const auto found = known.find(index);
  if (found != known.end()) return found->second;
  return known.emplace(index, kernels::cuda::device_limits(index)).first->second;
}

// shared_bytes.template operator()<T>(shape).
template <class Args, class Bytes>
bool fits_with(const Args& args, const char* what, const Bytes& shared_bytes) {
  if (args.q.scalar_type() == at::kDouble) return false;
  const DeviceLimits& limits = limits_of(args.q.device());
  kernels::Shape shape;
  shape.qk_size = args.q.size(3);
  shape.v_size = args.v.size(3);
  const int64_t bytes = args.q.scalar_type() == at::kBFloat16
                            ? shared_bytes.template operator()<kernels::BFloat16>(shape)
                            : shared_bytes.template operator()<float>(shape);
  if (kernels::cuda::fits(bytes, limits)) return true;
  say_once(concat(what, " with ", std::max(shape.qk_size, shape.v_size), " columns a head needs ",
                  bytes / 1024 + 1, " KiB of shared memory, and a block of ", limits.name, " has ",
                  limits.shared_bytes / 1024, ": it is composed of torch's operators"));
  return false;
}

}  // namespace

const Backend* backend_of(const at::Device& device) {
  if (!device.is_cuda()) return nullptr;
  static const Cuda backend;
  const DeviceLimits& limits = limits_of(device);
  if (!limits.has_code && !limits.name.empty())
    say_once(concat("this program has no CUDA kernels for ", limits.name,
                    ": it computes with torch's operators; build it with "
                    "-DCMAKE_CUDA_ARCHITECTURES=native on that machine"));
  return limits.has_code ? &backend : nullptr;
}

bool fits(const AttentionArgs& args) {
  return fits_with(args, "attention", []<class T>(const kernels::Shape& shape) {
    return kernels::cuda::attention_shared_bytes<T>(shape);
  });
}

bool fits(const DecodeArgs& args) {
  if (args.k.scalar_type() != args.q.scalar_type()) return false;  // torch converts such a cache
  return fits_with(args, "decoding", []<class T>(const kernels::Shape& shape) {
    return kernels::cuda::decode_shared_bytes<T>(shape);
  });
}

}  // namespace tempera::ops::cuda
