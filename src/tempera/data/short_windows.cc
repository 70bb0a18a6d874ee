#include "tempera/data/short_windows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::data {

ShortWindows::ShortWindows(std::shared_ptr<const Dataset> rows, double share, int64_t length)
    : rows_(std::move(rows)), share_(share), length_(length) {
  TEMPERA_CHECK(share >= 0 && share <= 1, "a share of ", share, " of the steps; 0 to 1 expected");
  TEMPERA_CHECK(length > 0, "pieces of ", length, " tokens; at least 1 expected");
}

bool ShortWindows::is_short(uint64_t step) const {
  const auto before = static_cast<double>(step) * share_;
  return std::floor(before + share_) > std::floor(before);
}

Batch ShortWindows::train(const BatchRequest& request) const {
  Batch batch = rows_->train(request);
  if (!is_short(request.step)) return batch;
  std::vector<std::vector<int64_t>> pieces(static_cast<size_t>(batch.rows));
  size_t most = 0;
  for (size_t row = 0; row < pieces.size(); ++row) {
    const auto cut = [&](int64_t document) {
      for (int64_t left = document; left > 0; left -= length_)
        pieces[row].push_back(std::min(left, length_));
    };
    if (batch.documents == 0) cut(batch.length);
    for (int64_t i = 0; i < batch.documents; ++i)
      cut(batch.document_lengths[row * static_cast<size_t>(batch.documents) +
                                 static_cast<size_t>(i)]);
    most = std::max(most, pieces[row].size());
  }
  batch.documents = static_cast<int64_t>(most);
  batch.document_lengths.clear();
  for (auto& row : pieces) {
    row.resize(most);  // filled up with zeros
    batch.document_lengths.insert(batch.document_lengths.end(), row.begin(), row.end());
  }
  return batch;
}

}  // namespace tempera::data
