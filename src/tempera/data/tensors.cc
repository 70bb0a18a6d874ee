#include "tempera/data/tensors.h"

#include <memory>
#include <utility>
#include <vector>

namespace tempera::data {
namespace {

torch::Tensor take(std::vector<int64_t> values, at::IntArrayRef shape) {
  if (values.empty()) return {};
  auto held = std::make_shared<std::vector<int64_t>>(std::move(values));
  int64_t* data = held->data();
  return torch::from_blob(
      data, shape, [held = std::move(held)](void*) {}, torch::kInt64);
}

}  // namespace

TensorBatch to_tensors(Batch batch) {
  const int64_t rows = batch.rows;
  const bool labelled = !batch.labels.empty();
  return {.tokens = take(std::move(batch.tokens), {rows, batch.length}),
          .targets = labelled ? take(std::move(batch.labels), {rows})
                              : take(std::move(batch.targets), {rows, batch.length}),
          .lengths = take(std::move(batch.lengths), {rows}),
          .source = take(std::move(batch.source), {rows, batch.source_length}),
          .source_lengths = take(std::move(batch.source_lengths), {rows}),
          .document_lengths = take(std::move(batch.document_lengths), {rows, batch.documents}),
          .question_positions = take(std::move(batch.question_positions), {rows, batch.questions}),
          .answer_positions = take(std::move(batch.answer_positions), {rows, batch.questions})};
}

}  // namespace tempera::data
