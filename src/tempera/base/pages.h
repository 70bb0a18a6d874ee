#pragma once

#include <cstddef>
#include <span>

namespace tempera {

// Gives the memory of a mapped file's bytes back; whoever touches them again reads them from the
// file again. Only for bytes of a MappedFile: other memory would lose its contents.
void release_pages(std::span<const std::byte> mapped);

}  // namespace tempera
