#include "tempera/data/short_windows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::data {

ShortWindows::ShortWindows(std::shared_ptr<const Dataset> rows,
                           std::shared_ptr<const Dataset> plain, double share, int64_t length)
    : ChangedRows(std::move(rows)), plain_(std::move(plain)), share_(share), length_(length) {
  TEMPERA_CHECK(share >= 0 && share <= 1, "a share of ", share, " of the steps; 0 to 1 expected");
  TEMPERA_CHECK(length > 0, "pieces of ", length, " tokens; at least 1 expected");
}

bool ShortWindows::is_short(uint64_t step) const {
  const auto before = static_cast<double>(step) * share_;
  return std::floor(before + share_) > std::floor(before);
}

Batch ShortWindows::train(const BatchRequest& request) const {
  if (!is_short(request.step)) return rows().train(request);
  Batch batch = plain_->train(request);
  std::vector<std::vector<int64_t>> pieces(static_cast<size_t>(batch.rows));
  size_t most = 0;
  for (size_t row = 0; row < pieces.size(); ++row) {
    const auto cut = [&](int64_t document) {
      for (int64_t left = document; left > 0; left -= length_)
        pieces[row].push_back(std::min(left, length_));
    };
    for_documents(batch, static_cast<int64_t>(row),
                  [&](int64_t, int64_t document) { cut(document); });
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
