#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tempera/io/gguf.h"
#include "tempera/io/safetensors.h"
#include "tempera/ops/blocks.h"

namespace tempera::models {

// The tensors of a file or folder, by name.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<int64_t> shape(const std::string& name) const = 0;
  // The values, of the file's own type or the one wanted, float32 or bfloat16; may point into the
  // file. On the CPU.
  virtual torch::Tensor read(const std::string& name, torch::ScalarType wanted) const = 0;
  // A matrix in the file's own blocks, where it is one that is computed on and stays.
  virtual std::optional<ops::WeightBlocks> blocks(const std::string& /*name*/) const { return {}; }
  // What keeps the bytes of blocks alive.
  virtual std::shared_ptr<const void> owner() const { return {}; }
  // Its part of the file gives its memory back.
  virtual void release(const std::string& name) const = 0;
};

// Both keep a reference to the file.
std::unique_ptr<TensorSource> source_of(const io::Safetensors& file);
std::unique_ptr<TensorSource> source_of(const io::Gguf& file);
// One whose matrices stay in their blocks.
std::unique_ptr<TensorSource> block_source_of(const std::shared_ptr<const io::Gguf>& file);

// A tensor of a file; points into it where the bytes are aligned.
torch::Tensor tensor_of(const io::TensorView& view);

}  // namespace tempera::models
