#include "tempera/temperature/rows.h"

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera {
namespace {

struct Interval {
  torch::Tensor begin, end;  // broadcast to (B, rows)
};

// The interval of the document that each row of `documents` lies in, taken from `intervals` (other
// lengths of the same documents, or the same).
Interval document_intervals(const torch::Tensor& documents, const torch::Tensor& intervals,
                            int64_t batch, int64_t rows) {
  TEMPERA_CHECK(documents.dim() == 2 && documents.size(0) == batch && documents.size(1) > 0 &&
                    documents.sizes() == intervals.sizes(),
                "document lengths must have the shape (", batch, ", documents)");
  const auto lengths = documents.to(torch::kInt64);
  const auto row = torch::arange(rows, lengths.options()).expand({batch, rows}).contiguous();
  const auto document = torch::searchsorted(lengths.cumsum(1), row, /*out_int32=*/false,
                                            /*right=*/true)
                            .clamp_max(documents.size(1) - 1);
  const auto ends = intervals.to(torch::kInt64).cumsum(1);
  return {(ends - intervals).gather(1, document), ends.gather(1, document)};
}

Interval whole(int64_t batch, int64_t rows, const torch::TensorOptions& options) {
  return {torch::zeros({batch, 1}, options), torch::full({batch, 1}, rows, options)};
}

void cut(Interval& interval, const torch::Tensor& start, const torch::Tensor& end) {
  if (start.defined()) {
    interval.begin = torch::maximum(interval.begin, start.to(torch::kInt64).unsqueeze(1));
  }
  if (end.defined()) {
    interval.end = torch::minimum(interval.end, end.to(torch::kInt64).unsqueeze(1));
  }
}

}  // namespace

RowCounts sequence_rows(const SequenceMask& mask, int64_t batch, int64_t rows,
                        const torch::Device& device) {
  const auto options = torch::dtype(torch::kInt64).device(device);
  const auto row = torch::arange(rows, options);
  Interval interval = mask.documents.defined()
                          ? document_intervals(mask.documents, mask.documents, batch, rows)
                          : whole(batch, rows, options);
  cut(interval, mask.start, mask.end);
  const auto inside = (row >= interval.begin) & (row < interval.end);
  const auto position = torch::where(inside, row - interval.begin, torch::full({}, -1, options));
  if (mask.causal) interval.end = torch::minimum(interval.end, row + 1);
  if (mask.window) {
    interval.begin = torch::maximum(interval.begin, row - *mask.window + 1);
    interval.end = torch::minimum(interval.end, row + *mask.window);
  }
  const auto n = (interval.end - interval.begin).clamp_min(0);
  return {n.expand({batch, rows}), position};
}

RowCounts decode_rows(const torch::Tensor& lengths, int64_t rows, const torch::Tensor& start,
                      std::optional<int64_t> window) {
  const auto whole_lengths = lengths.to(torch::kInt64).unsqueeze(1);
  auto position = whole_lengths - rows + torch::arange(rows, whole_lengths.options());
  if (start.defined()) position = position - start.to(torch::kInt64).unsqueeze(1);
  position = position.clamp_min(-1);
  auto n = position + 1;
  if (window) n = n.clamp_max(*window);
  return {n, position};
}

torch::Tensor cross_counts(const torch::Tensor& documents, const torch::Tensor& key_documents,
                           const torch::Tensor& key_start, const torch::Tensor& key_end,
                           int64_t batch, int64_t q_rows, int64_t kv_rows,
                           const torch::Device& device) {
  TEMPERA_CHECK(documents.defined() == key_documents.defined(),
                "a cross-attention has document lengths for both sides or for none");
  Interval interval = documents.defined()
                          ? document_intervals(documents, key_documents, batch, q_rows)
                          : whole(batch, kv_rows, torch::dtype(torch::kInt64).device(device));
  cut(interval, key_start, key_end);
  return (interval.end - interval.begin).clamp_min(0).expand({batch, q_rows});
}

}  // namespace tempera
