#include "tempera/ops/memory.h"

namespace tempera::ops {

void release_memory(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage.set_nbytes(0);
}

void take_memory(const at::Tensor& tensor) {
  take_memory(*tensor.storage().unsafeGetStorageImpl(), tensor.nbytes());
}

void take_memory(c10::StorageImpl& storage, size_t bytes) {
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

}  // namespace tempera::ops
