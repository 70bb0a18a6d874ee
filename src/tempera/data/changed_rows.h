#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tempera/data/dataset.h"

namespace tempera::data {

// Rows of another dataset whose training rows are changed; the held-out ones never are.
class ChangedRows : public Dataset {
 public:
  explicit ChangedRows(std::shared_ptr<const Dataset> rows) : rows_(std::move(rows)) {}

  std::string name() const override { return rows_->name(); }
  int64_t vocabulary() const override { return rows_->vocabulary(); }
  int64_t classes() const override { return rows_->classes(); }
  int64_t train_length() const override { return rows_->train_length(); }
  const std::vector<HeldOutSet>& held_out_sets() const override { return rows_->held_out_sets(); }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const override {
    return rows_->held_out(set, first_row, rows);
  }

 protected:
  const Dataset& rows() const { return *rows_; }

 private:
  std::shared_ptr<const Dataset> rows_;
};

// Calls visit(first place, tokens) for every document of a row; a place counts over the batch.
template <class Visit>
void for_documents(const Batch& batch, int64_t row, const Visit& visit) {
  const int64_t begin = row * batch.length;
  if (batch.documents == 0) return visit(begin, batch.length);
  int64_t filled = 0;
  for (int64_t i = 0; i < batch.documents; ++i) {
    const int64_t size = batch.document_lengths[static_cast<size_t>(row * batch.documents + i)];
    if (size > 0) visit(begin + filled, size);
    filled += size;
  }
}

// The number of a row among all rows of the training.
inline uint64_t row_number(const BatchRequest& request, int64_t row) {
  return request.step * static_cast<uint64_t>(request.batch_rows) +
         static_cast<uint64_t>(request.first_row + row);
}

}  // namespace tempera::data
