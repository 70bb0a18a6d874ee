#include "tempera/ops/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

namespace tempera::ops {

AtenParallel::AtenParallel() : workers_(at::in_parallel_region() ? 1 : at::get_num_threads()) {}

void AtenParallel::run(int64_t tasks, FunctionRef<void(int64_t, int)> body) {
  const int64_t seats = std::min<int64_t>(workers_, tasks);
  if (seats <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  // One element a worker, its value the worker's index: TensorIterator hands the elements to the
  // threads.
  std::vector<int32_t> indices(static_cast<size_t>(seats));
  std::iota(indices.begin(), indices.end(), 0);
  const at::Tensor elements = at::from_blob(indices.data(), {seats}, at::kInt);
  auto iterator = at::TensorIterator::borrowing_nullary_op(elements);
  std::atomic<int64_t> next = 0;
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t columns, int64_t rows) {
        for (int64_t i = 0; i < rows * columns; ++i) {
          const char* element = data[0] + i % columns * strides[0] + i / columns * strides[1];
          const int worker = *reinterpret_cast<const int32_t*>(element);
          for (int64_t task = next++; task < tasks; task = next++) body(task, worker);
        }
      },
      /*grain_size=*/1);
}

}  // namespace tempera::ops
