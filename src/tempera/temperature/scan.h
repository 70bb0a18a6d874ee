#pragma once

#include <torch/types.h>

namespace tempera {

// Sums over the rows of a document up to and including each row. values: (B, T); position: (B, T),
// -1 for padding, whose rows get 0. past (B), where defined, is the sum at the row before the
// first: documents that began before it go on from there. The order of additions depends on nothing
// but the position in the document, so that the rows of one document never change a bit in another.
torch::Tensor document_prefix_sums(const torch::Tensor& values, const torch::Tensor& position,
                                   const torch::Tensor& past);

// The index (B, T) of the last row of each row's document; padding rows name an arbitrary row.
torch::Tensor document_last_rows(const torch::Tensor& position);

}  // namespace tempera
