#include "tempera/ops/host_mask.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tempera::ops {
namespace {

std::vector<std::vector<int64_t>> host_documents(const at::Tensor& lengths, int64_t count) {
  if (!lengths.defined()) return {};
  const std::vector<int64_t> numbers = host_numbers(lengths);
  const auto columns = static_cast<size_t>(lengths.size(1));
  std::vector<std::vector<int64_t>> documents(static_cast<size_t>(lengths.size(0)));
  for (size_t b = 0; b < documents.size(); ++b) {
    const auto first = numbers.begin() + static_cast<ptrdiff_t>(b * columns);
    documents[b].assign(first, first + static_cast<ptrdiff_t>(columns));
    documents[b].resize(static_cast<size_t>(count));
  }
  return documents;
}

std::vector<kernels::KeyRange> host_content(const at::Tensor& start, const at::Tensor& end,
                                            const kernels::Shape& shape) {
  if (!start.defined() && !end.defined()) return {};
  std::vector<kernels::KeyRange> content(static_cast<size_t>(shape.batch), {0, shape.kv_rows});
  const std::vector<int64_t> starts = host_numbers(start);
  const std::vector<int64_t> ends = host_numbers(end);
  for (size_t b = 0; b < content.size(); ++b) {
    if (start.defined()) content[b].begin = starts[b];
    if (end.defined()) content[b].end = ends[b];
  }
  return content;
}

}  // namespace

std::vector<int64_t> host_numbers(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor host = tensor.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

HostMask host_mask(const AttentionArgs& args, const kernels::Shape& shape) {
  HostMask host;
  host.mask.causal = args.causal;
  host.mask.window = args.window.value_or(0);
  host.mask.query_offset =
      args.query_offset.value_or(args.causal ? shape.kv_rows - shape.q_rows : 0);
  if (!args.documents.defined() && !args.key_start.defined() && !args.key_end.defined())
    return host;
  const at::Tensor& key_documents =
      args.key_documents.defined() ? args.key_documents : args.documents;
  // Zeros at the end are no documents: both sides get as many as the longer list has.
  const int64_t count =
      args.documents.defined() ? std::max(args.documents.size(1), key_documents.size(1)) : 0;
  host.ranges = kernels::visible_ranges(
      {shape.batch, shape.q_rows, host_documents(args.documents, count), {}},
      {shape.batch, shape.kv_rows, host_documents(key_documents, count),
       host_content(args.key_start, args.key_end, shape)});
  host.mask.key_begin = host.ranges.begin.data();
  host.mask.key_end = host.ranges.end.data();
  return host;
}

}  // namespace tempera::ops
