#include "tempera/ops/blocks.h"

#include <ATen/OpaqueTensorImpl.h>

#include "tempera/base/error.h"

namespace tempera::ops {
namespace {

struct Held {
  std::vector<WeightBlocks> parts;
  std::shared_ptr<const void> owner;
};

using Handle = std::shared_ptr<const Held>;
using BlockImpl = at::OpaqueTensorImpl<Handle>;

// A key that no operation of torch is made for, so that none takes the tensor for another kind.
constexpr auto kKey = c10::DispatchKey::FPGA;

}  // namespace

bool computes_on(io::GgmlType type) {
  switch (type) {
    case io::GgmlType::kQ4_0:
    case io::GgmlType::kQ4_1:
    case io::GgmlType::kQ5_0:
    case io::GgmlType::kQ5_1:
    case io::GgmlType::kQ8_0:
    case io::GgmlType::kQ4_K:
    case io::GgmlType::kQ5_K:
    case io::GgmlType::kQ6_K:
      return true;
    default:
      return false;
  }
}

at::Tensor block_tensor(std::vector<WeightBlocks> parts, int64_t columns,
                        std::shared_ptr<const void> owner) {
  int64_t rows = 0;
  for (const WeightBlocks& part : parts) {
    const int64_t shape[] = {part.rows, columns};
    const auto name = io::info_of(part.type).name;
    TEMPERA_CHECK(computes_on(part.type), "blocks of the type ", name, " are not computed on");
    TEMPERA_CHECK(part.bytes.size() == io::ggml_bytes(part.type, shape, "a matrix of blocks"),
                  "a matrix ", io::shape_text(shape), " of ", name, " has ", part.bytes.size(),
                  " bytes, which do not fit its shape");
    TEMPERA_CHECK(part.place.empty() || static_cast<int64_t>(part.place.size()) == part.rows,
                  "places of ", part.place.size(), " rows given for ", part.rows);
    for (const int64_t place : part.place)
      TEMPERA_CHECK(place >= 0 && place < part.rows, "a row's place ", place, " of ", part.rows);
    rows += part.rows;
  }
  const int64_t sizes[] = {rows, columns};
  return at::detail::make_tensor<BlockImpl>(
      c10::DispatchKeySet(kKey), caffe2::TypeMeta::Make<float>(), c10::Device(c10::kCPU),
      std::make_shared<const Held>(Held{std::move(parts), std::move(owner)}), sizes);
}

const std::vector<WeightBlocks>* blocks_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kKey)) return nullptr;
  const auto* impl = dynamic_cast<const BlockImpl*>(tensor.unsafeGetTensorImpl());
  return impl ? &const_cast<BlockImpl*>(impl)->unsafe_opaque_handle()->parts : nullptr;
}

}  // namespace tempera::ops
