#include "tempera/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tempera {

void release_pages(std::span<const std::byte> mapped) {
  // Whole pages alone: what lies beside may still be in use.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t skipped = (page - address % page) % page;
  if (mapped.size() < skipped + page) return;
  const size_t size = (mapped.size() - skipped) / page * page;
  // Advice: where the system does not take it, nothing is lost but memory.
  ::madvise(const_cast<std::byte*>(mapped.data() + skipped), size, MADV_DONTNEED);
}

}  // namespace tempera
