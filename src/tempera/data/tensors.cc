#include "tempera/data/tensors.h"

#include <memory>
#include <utility>
#include <vector>

namespace tempera::data {
namespace {

torch::Tensor take(std::vector<int64_t> values, int64_t rows, int64_t columns) {
  if (columns == 0) return {};
  auto held = std::make_shared<std::vector<int64_t>>(std::move(values));
  int64_t* data = held->data();
  return torch::from_blob(
      data, {rows, columns}, [held = std::move(held)](void*) {}, torch::kInt64);
}

}  // namespace

TensorBatch to_tensors(Batch batch) {
  return {
      .tokens = take(std::move(batch.tokens), batch.rows, batch.length),
      .targets = take(std::move(batch.targets), batch.rows, batch.length),
      .document_lengths = take(std::move(batch.document_lengths), batch.rows, batch.documents),
      .question_positions = take(std::move(batch.question_positions), batch.rows, batch.questions),
      .answer_positions = take(std::move(batch.answer_positions), batch.rows, batch.questions)};
}

}  // namespace tempera::data
