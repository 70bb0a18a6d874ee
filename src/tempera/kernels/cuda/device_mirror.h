#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/attention.h"

// For tests and benchmarks.
namespace tempera::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  TEMPERA_CHECK(status == cudaSuccess, what, ": ", cudaGetErrorString(status));
}

class DeviceBytes {
 public:
  explicit DeviceBytes(size_t size) : size_(size) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, size > 0 ? size : 1), "cudaMalloc");
    memory_.reset(memory);
  }
  void* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  void fill(int byte) { check(cudaMemset(data(), byte, size_), "cudaMemset"); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  size_t size_;
  std::unique_ptr<void, Free> memory_;
};

// A workspace of exactly the size asked for and a guard behind it, full of NaNs.
class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(size_t size) : size_(size), bytes_(size + kGuard) { bytes_.fill(0xFF); }
  void* data() const { return bytes_.data(); }
  bool guard_intact() const {
    std::vector<unsigned char> guard(kGuard);
    check(cudaMemcpy(guard.data(), static_cast<unsigned char*>(bytes_.data()) + size_, kGuard,
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (const unsigned char byte : guard)
      if (byte != 0xFF) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t size_;
  DeviceBytes bytes_;
};

// Copies of pieces of the host's memory, and pointers translated into them. A copy starts at the
// same place relative to 64 bytes as its original: what is aligned stays so, and what is not, too.
class DeviceMirror {
 public:
  template <class T>
  void add(std::span<T> host) {
    if (host.empty()) return;
    const auto start = reinterpret_cast<uintptr_t>(host.data());
    Piece& piece = pieces_.emplace_back(start, host.size_bytes(), start % kAlignment,
                                        DeviceBytes(host.size_bytes() + kAlignment));
    check(cudaMemcpy(piece.device(), host.data(), host.size_bytes(), cudaMemcpyHostToDevice),
          "cudaMemcpy to the device");
  }
  template <class T>
  void add(std::vector<T>& host) {
    add(std::span<T>(host));
  }

  // A pointer to a piece that is empty becomes null.
  template <class T>
  T* operator()(T* host) const {
    if (!host) return nullptr;
    const auto at = reinterpret_cast<uintptr_t>(host);
    for (const Piece& piece : pieces_)
      if (at >= piece.host && at < piece.host + piece.size)
        return reinterpret_cast<T*>(piece.device() + (at - piece.host));
    throw Error("a pointer that is not mirrored");
  }
  template <class T>
  Rows<T> operator()(Rows<T> rows) const {
    rows.data = (*this)(rows.data);
    return rows;
  }

  void download() const {
    for (const Piece& piece : pieces_)
      check(cudaMemcpy(reinterpret_cast<void*>(piece.host), piece.device(), piece.size,
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy to the host");
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Piece {
    Piece(uintptr_t host_start, size_t bytes, size_t start, DeviceBytes memory_of_device)
        : host(host_start), size(bytes), offset(start), memory(std::move(memory_of_device)) {}
    unsigned char* device() const { return static_cast<unsigned char*>(memory.data()) + offset; }

    uintptr_t host;
    size_t size;
    size_t offset;
    DeviceBytes memory;
  };
  std::vector<Piece> pieces_;
};

}  // namespace tempera::kernels::cuda
