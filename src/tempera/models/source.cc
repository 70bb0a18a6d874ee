#include "tempera/models/source.h"

#include <algorithm>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/base/pages.h"
#include "tempera/io/gguf_blocks.h"
#include "tempera/models/tensor_file.h"
#include "tempera/ops/parallel.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(const io::Safetensors& file) : file_(file) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& view : file_.tensors()) all.push_back(view.name);
    return all;
  }
  bool has(const std::string& name) const override { return file_.find(name) != nullptr; }
  std::vector<int64_t> shape(const std::string& name) const override {
    return file_.at(name).shape;
  }
  torch::Tensor read(const std::string& name, torch::ScalarType) const override {
    return tensor_of(file_.at(name));
  }
  void release(const std::string& name) const override { release_pages(file_.at(name).bytes); }

 private:
  const io::Safetensors& file_;
};

class GgufSource : public TensorSource {
 public:
  explicit GgufSource(const io::Gguf& file) : file_(file) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& tensor : file_.tensors()) all.push_back(tensor.name);
    return all;
  }
  bool has(const std::string& name) const override { return file_.find(name) != nullptr; }
  std::vector<int64_t> shape(const std::string& name) const override {
    return file_.at(name).shape;
  }

  torch::Tensor read(const std::string& name, torch::ScalarType wanted) const override {
    const io::GgufTensor& tensor = file_.at(name);
    const bool half = wanted == torch::kBFloat16;
    auto values = torch::empty(tensor.shape, half ? torch::kBFloat16 : torch::kFloat32);
    if (half)
      fill(tensor, static_cast<uint16_t*>(values.mutable_data_ptr()));
    else
      fill(tensor, values.mutable_data_ptr<float>());
    return values;
  }
  void release(const std::string& name) const override { release_pages(file_.at(name).bytes); }

 private:
  template <class T>
  static void fill(const io::GgufTensor& tensor, T* out) {
    const int64_t rows = io::row_count(tensor);
    const int64_t columns = io::column_count(tensor);
    const int64_t task_rows = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(columns, 1));
    ops::AtenParallel parallel;
    parallel.run((rows + task_rows - 1) / task_rows, [&](int64_t task, int) {
      const int64_t begin = task * task_rows;
      const int64_t end = std::min(rows, begin + task_rows);
      io::dequantize_rows(
          tensor, begin, end,
          std::span<T>(out + begin * columns, static_cast<size_t>((end - begin) * columns)));
    });
  }

  static constexpr int64_t kTaskElements = 1 << 18;
  const io::Gguf& file_;
};

class GgufBlockSource final : public GgufSource {
 public:
  explicit GgufBlockSource(std::shared_ptr<const io::Gguf> file)
      : GgufSource(*file), file_(std::move(file)) {}

  std::optional<ops::WeightBlocks> blocks(const std::string& name) const override {
    const io::GgufTensor& tensor = file_->at(name);
    if (tensor.shape.size() != 2 || !ops::computes_on(tensor.type)) return {};
    return ops::WeightBlocks{tensor.type, tensor.shape[0], tensor.bytes};
  }
  std::shared_ptr<const void> owner() const override { return file_; }

 private:
  std::shared_ptr<const io::Gguf> file_;
};

}  // namespace

torch::Tensor tensor_of(const io::TensorView& view) {
  const auto type = torch_type(view);
  auto* bytes = const_cast<std::byte*>(view.bytes.data());  // from_blob reads only
  const size_t size = io::dtype_size(view.dtype);
  if (!view.bytes.empty() && reinterpret_cast<uintptr_t>(bytes) % size == 0)
    return torch::from_blob(bytes, view.shape, type);
  auto copy = torch::empty(view.shape, type);
  if (!view.bytes.empty()) std::memcpy(copy.mutable_data_ptr(), bytes, view.bytes.size());
  return copy;
}

std::unique_ptr<TensorSource> source_of(const io::Safetensors& file) {
  return std::make_unique<SafetensorsSource>(file);
}

std::unique_ptr<TensorSource> source_of(const io::Gguf& file) {
  return std::make_unique<GgufSource>(file);
}

std::unique_ptr<TensorSource> block_source_of(const std::shared_ptr<const io::Gguf>& file) {
  return std::make_unique<GgufBlockSource>(file);
}

}  // namespace tempera::models
