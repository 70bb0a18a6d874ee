#include "tempera/temperature/state.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera {

torch::Tensor MethodState::last() const {
  const bool empty = std::ranges::all_of(lengths_, [](int64_t length) { return length == 0; });
  if (width_ == 0 || empty) return {};
  const auto lengths = torch::tensor(lengths_, torch::kInt64).to(values_.device());
  const auto row = (lengths - 1).clamp_min(0).view({-1, 1, 1}).expand({-1, 1, width_});
  const auto values = values_.gather(1, row).squeeze(1);
  return torch::where((lengths > 0).unsqueeze(1), values, torch::zeros_like(values));
}

void MethodState::append(const torch::Tensor& rows) {
  if (width_ == 0) return;
  const auto batch = static_cast<int64_t>(lengths_.size());
  TEMPERA_CHECK(
      rows.defined() && rows.dim() == 3 && rows.size(0) == batch && rows.size(2) == width_,
      "a method's state must have the shape (", batch, ", rows, ", width_, ")");
  const torch::NoGradGuard no_grad;
  const int64_t added = rows.size(1);
  if (batch == 0 || added == 0) return;
  reserve(std::ranges::max(lengths_) + added, rows.options().dtype(torch::kFloat64));
  for (int64_t b = 0; b < batch; ++b) {
    auto& length = lengths_[static_cast<size_t>(b)];
    values_[b].narrow(0, length, added).copy_(rows[b]);
    length += added;
  }
}

void MethodState::truncate(int64_t length) {
  truncate(std::vector<int64_t>(lengths_.size(), length));
}

void MethodState::truncate(const std::vector<int64_t>& lengths) {
  TEMPERA_CHECK(lengths.size() == lengths_.size(), "truncating a state of ", lengths_.size(),
                " sequences needs as many lengths, not ", lengths.size());
  if (width_ == 0) return;
  for (size_t b = 0; b < lengths.size(); ++b) {
    TEMPERA_CHECK(lengths[b] >= 0 && lengths[b] <= lengths_[b], "sequence ", b, " has ",
                  lengths_[b], " rows: it cannot be truncated to ", lengths[b]);
    lengths_[b] = lengths[b];
  }
}

MethodState MethodState::fork() const {
  MethodState copy = *this;
  if (values_.defined()) copy.values_ = values_.clone();
  return copy;
}

MethodState MethodState::select(const std::vector<int64_t>& sequences) const {
  MethodState copy(static_cast<int64_t>(sequences.size()), width_);
  for (size_t b = 0; b < sequences.size(); ++b) {
    TEMPERA_CHECK(sequences[b] >= 0 && sequences[b] < static_cast<int64_t>(lengths_.size()),
                  "there is no sequence ", sequences[b], " in a state of ", lengths_.size());
    copy.lengths_[b] = lengths_[static_cast<size_t>(sequences[b])];
  }
  if (values_.defined()) {
    copy.values_ =
        values_.index_select(0, torch::tensor(sequences, torch::kInt64).to(values_.device()));
  }
  return copy;
}

void MethodState::reserve(int64_t rows, const torch::TensorOptions& options) {
  const int64_t capacity = values_.defined() ? values_.size(1) : 0;
  if (rows <= capacity) return;
  // Doubling keeps the cost of appending row by row linear.
  const auto grown = torch::zeros(
      {static_cast<int64_t>(lengths_.size()), std::max<int64_t>(rows, 2 * capacity), width_},
      options);
  if (capacity > 0) grown.narrow(1, 0, capacity).copy_(values_);
  values_ = grown;
}

}  // namespace tempera
