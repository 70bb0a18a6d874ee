#include "tempera/ops/host_mask.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tempera/base/error.h"

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

// Of every query row, where it has a range of its own.
std::vector<int32_t> row_bounds(const char* name, const at::Tensor& bound, int64_t otherwise,
                                const kernels::Shape& shape) {
  const at::Tensor rows =
      (bound.defined() ? bound : at::full({1, 1}, otherwise, at::TensorOptions().dtype(at::kLong)))
          .to(at::kCPU, at::kLong);
  TEMPERA_CHECK(rows.numel() == 0 || (rows.ge(0) & rows.le(shape.kv_rows)).all().item<bool>(), name,
                ": ", rows.min().item<int64_t>(), " to ", rows.max().item<int64_t>(),
                " given, 0 to ", shape.kv_rows, " (the key rows) expected");
  const at::Tensor all = (rows.dim() == 1 ? rows.unsqueeze(1) : rows)
                             .to(at::kInt)
                             .expand({shape.batch, shape.q_rows})
                             .contiguous();
  const int32_t* data = all.const_data_ptr<int32_t>();
  return {data, data + all.numel()};
}

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

std::vector<int32_t> host_key_begin(const at::Tensor& key_start, const kernels::Shape& shape) {
  std::vector<int32_t> begin;
  const std::vector<int64_t> starts = host_numbers(key_start);
  for (size_t b = 0; b < starts.size(); ++b) {
    TEMPERA_CHECK(starts[b] >= 0 && starts[b] <= shape.kv_rows, "key_start: ", starts[b],
                  " given for sequence ", b, ", 0 to ", shape.kv_rows,
                  " (the capacity of the cache) expected");
    begin.insert(begin.end(), static_cast<size_t>(shape.q_rows), static_cast<int32_t>(starts[b]));
  }
  return begin;
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
  const auto by_row = [](const at::Tensor& bound) { return bound.defined() && bound.dim() == 2; };
  if (by_row(args.key_start) || by_row(args.key_end)) {
    host.ranges = {row_bounds("key_start", args.key_start, 0, shape),
                   row_bounds("key_end", args.key_end, shape.kv_rows, shape)};
    host.mask.key_begin = host.ranges.begin.data();
    host.mask.key_end = host.ranges.end.data();
    return host;
  }
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

HostCache host_cache(const DecodeArgs& args, const kernels::Shape& shape) {
  HostCache cache;
  cache.lengths = host_int32(args.lengths);
  if (args.block_table.defined()) cache.block_table = host_int32(args.block_table);
  check_cache(cache.lengths, cache.block_table, shape, args.k);
  cache.mask.causal = args.causal;
  cache.mask.window = args.window.value_or(0);
  if (args.key_start.defined()) {
    cache.key_begin = host_key_begin(args.key_start, shape);
    cache.mask.key_begin = cache.key_begin.data();
  }
  return cache;
}

std::vector<kernels::KeyRange> visible_keys(const HostCache& cache, const kernels::Shape& shape) {
  std::vector<kernels::KeyRange> keys;
  kernels::Shape used = shape;
  kernels::Mask mask = cache.mask;
  for (int64_t b = 0; b < shape.batch; ++b) {
    used.kv_rows = cache.lengths.const_data_ptr<int32_t>()[b];
    mask.query_offset = used.kv_rows - shape.q_rows;
    for (int64_t i = 0; i < shape.q_rows; ++i)
      keys.push_back(kernels::visible_keys(mask, used, b, i));
  }
  return keys;
}

}  // namespace tempera::ops
