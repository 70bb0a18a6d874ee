#include "tempera/data/tensors.h"

#include <memory>
#include <utility>
#include <vector>

namespace tempera::data {
namespace {

template <class T>
torch::Tensor take(std::vector<T> values, at::IntArrayRef shape) {
  if (values.empty()) return {};
  auto held = std::make_shared<std::vector<T>>(std::move(values));
  T* data = held->data();
  return torch::from_blob(
      data, shape, [held = std::move(held)](void*) {}, c10::CppTypeToScalarType<T>::value);
}

}  // namespace

TensorBatch to_tensors(Batch batch) {
  const int64_t rows = batch.rows;
  const bool labelled = !batch.labels.empty();
  return {.tokens = take(std::move(batch.tokens), {rows, batch.length}),
          .targets = labelled ? take(std::move(batch.labels), {rows})
                              : take(std::move(batch.targets), {rows, batch.length}),
          .lengths = take(std::move(batch.lengths), {rows}),
          .shares = take(std::move(batch.shares), {rows, batch.length}),
          .positions = take(std::move(batch.positions), {rows, batch.length}),
          .position_end = batch.position_end,
          .attention_scale = take(std::move(batch.attention_scale), {rows, batch.length}),
          .source = take(std::move(batch.source), {rows, batch.source_length}),
          .source_lengths = take(std::move(batch.source_lengths), {rows}),
          .document_lengths = take(std::move(batch.document_lengths), {rows, batch.documents}),
          .question_positions = take(std::move(batch.question_positions), {rows, batch.questions}),
          .answer_positions = take(std::move(batch.answer_positions), {rows, batch.questions})};
}

nn::Batch to_model_batch(const data::TensorBatch& rows, torch::Device device) {
  const auto moved = [&](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device) : tensor;
  };
  nn::Batch batch;
  batch.tokens = moved(rows.tokens);
  batch.targets = moved(rows.targets);
  batch.documents = moved(rows.document_lengths);
  batch.key_end = moved(rows.lengths);
  batch.shares = moved(rows.shares);
  batch.positions = moved(rows.positions);
  batch.position_end = rows.position_end;
  batch.attention_scale = moved(rows.attention_scale);
  batch.source = moved(rows.source);
  batch.source_end = moved(rows.source_lengths);
  return batch;
}

nn::Batch to_model_batch(Batch batch, torch::Device device) {
  return to_model_batch(to_tensors(std::move(batch)), device);
}

}  // namespace tempera::data
