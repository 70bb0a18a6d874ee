#pragma once

#include "tempera/data/dataset.h"
#include "tempera/nn/model.h"
#include "tempera/ops/torch.h"

namespace tempera::data {

// A batch as tensors on the CPU, int64 where nothing else is said. What the batch has not is an
// undefined tensor.
struct TensorBatch {
  torch::Tensor tokens;     // (rows, length)
  torch::Tensor targets;    // (rows, length); kIgnored where nothing is predicted; or the
                            // labels, (rows)
  torch::Tensor lengths;    // (rows)
  torch::Tensor shares;     // (rows, length) float32
  torch::Tensor positions;  // (rows, length)
  int64_t position_end = 0;
  torch::Tensor attention_scale;     // (rows, length) float32
  torch::Tensor source;              // (rows, source_length)
  torch::Tensor source_lengths;      // (rows)
  torch::Tensor document_lengths;    // (rows, documents)
  torch::Tensor question_positions;  // (rows, questions)
  torch::Tensor answer_positions;    // (rows, questions)
};

// Takes the batch's memory over; nothing is copied.
TensorBatch to_tensors(Batch batch);

// What of a batch the model reads.
nn::Batch to_model_batch(const TensorBatch& rows, torch::Device device = torch::kCPU);
nn::Batch to_model_batch(Batch batch, torch::Device device = torch::kCPU);

}  // namespace tempera::data
