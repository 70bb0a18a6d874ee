#include "tempera/temperature/scan.h"

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera {
namespace {

// Rows `distance` later; the first ones are filled with zeros.
torch::Tensor shifted(const torch::Tensor& rows, int64_t distance) {
  return torch::constant_pad_nd(rows.narrow(1, 0, rows.size(1) - distance), {distance, 0}, 0);
}

}  // namespace

torch::Tensor document_prefix_sums(const torch::Tensor& values, const torch::Tensor& position,
                                   const torch::Tensor& past) {
  const int64_t rows = values.size(1);
  const auto zero = torch::zeros({}, values.options());
  // where(), not a product: what a masked row holds (perhaps infinity) must not matter.
  auto sums = torch::where(position >= 0, values, zero);
  for (int64_t distance = 1; distance < rows; distance *= 2) {
    sums = sums + torch::where(position >= distance, shifted(sums, distance), zero);
  }
  const auto began_before = position > torch::arange(rows, position.options());
  if (past.defined()) {
    sums = sums + torch::where(began_before, past.unsqueeze(1).to(values.scalar_type()), zero);
  } else if (position.device().is_cpu()) {
    TEMPERA_CHECK(
        !began_before.any().item<bool>(),
        "a document goes on from rows that are not here, and their state is missing: pass "
        "the state that the method returned for them");
  }
  return sums;
}

torch::Tensor document_last_rows(const torch::Tensor& position) {
  const int64_t rows = position.size(1);
  if (rows == 0) return position;
  const auto index = torch::arange(rows, position.options()).expand_as(position);
  const auto next = torch::constant_pad_nd(position.narrow(1, 1, rows - 1), {0, 1}, 0);
  const auto ends = torch::where(next <= 0, index, torch::full_like(position, rows - 1));
  return std::get<0>(ends.flip(1).cummin(1)).flip(1);
}

}  // namespace tempera
