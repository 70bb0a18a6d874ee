#include "tempera/models/tensor_file.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/safetensors.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

constexpr std::pair<io::DType, at::ScalarType> kTypes[] = {{io::DType::kF32, at::kFloat},
                                                           {io::DType::kF64, at::kDouble},
                                                           {io::DType::kBF16, at::kBFloat16},
                                                           {io::DType::kF16, at::kHalf},
                                                           {io::DType::kI64, at::kLong},
                                                           {io::DType::kI32, at::kInt},
                                                           {io::DType::kU8, at::kByte},
                                                           {io::DType::kBool, at::kBool},
                                                           {io::DType::kI8, at::kChar},
                                                           {io::DType::kI16, at::kShort},
                                                           {io::DType::kF8E4M3, at::kFloat8_e4m3fn},
                                                           {io::DType::kF8E5M2, at::kFloat8_e5m2}};

io::DType stored_type(const std::string& name, at::ScalarType type) {
  for (const auto& [stored, torch_type] : kTypes)
    if (torch_type == type) return stored;
  throw Error(concat("the tensor '", name, "' has the type ", c10::toString(type),
                     ", which a checkpoint cannot hold"));
}

}  // namespace

at::ScalarType torch_type(const io::TensorView& view) {
  for (const auto& [stored, type] : kTypes)
    if (stored == view.dtype) return type;
  throw Error(concat("the tensor '", view.name, "' has the type ", io::dtype_name(view.dtype),
                     ", which no model has"));
}

io::TensorView view_of(const std::string& name, const torch::Tensor& tensor) {
  TEMPERA_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "the tensor '", name,
                "' does not lie in one piece in memory");
  return {.name = name,
          .dtype = stored_type(name, tensor.scalar_type()),
          .shape = tensor.sizes().vec(),
          .bytes = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

void write_tensors(const std::filesystem::path& path, const nn::StateMap& tensors) {
  std::vector<at::Tensor> held;  // keeps the bytes alive
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    held.push_back(tensor.detach().to(at::kCPU).contiguous());
    views.push_back(view_of(name, held.back()));
  }
  io::write_safetensors(path, std::move(views));
}

nn::StateMap read_tensors(const std::filesystem::path& path) {
  const io::Safetensors file(path);
  nn::StateMap tensors;
  for (const io::TensorView& view : file.tensors()) {
    at::Tensor tensor = at::empty(view.shape, torch_type(view));
    if (!view.bytes.empty())
      std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    tensors.emplace(view.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace tempera::models
