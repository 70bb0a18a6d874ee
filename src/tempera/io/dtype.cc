#include "tempera/io/dtype.h"

#include <array>

namespace tempera::io {
namespace {

struct Entry {
  std::string_view name;
  size_t size;
};

// In the order of the enumeration.
constexpr std::array<Entry, 15> kEntries{{{"BOOL", 1},
                                          {"U8", 1},
                                          {"I8", 1},
                                          {"F8_E5M2", 1},
                                          {"F8_E4M3", 1},
                                          {"I16", 2},
                                          {"U16", 2},
                                          {"F16", 2},
                                          {"BF16", 2},
                                          {"I32", 4},
                                          {"U32", 4},
                                          {"F32", 4},
                                          {"F64", 8},
                                          {"I64", 8},
                                          {"U64", 8}}};
static_assert(kEntries.size() == static_cast<size_t>(DType::kU64) + 1);

}  // namespace

size_t dtype_size(DType dtype) { return kEntries[static_cast<size_t>(dtype)].size; }

std::string_view dtype_name(DType dtype) { return kEntries[static_cast<size_t>(dtype)].name; }

std::optional<DType> find_dtype(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i)
    if (kEntries[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::string_view dtype_names() {
  return "BOOL, U8, I8, F8_E5M2, F8_E4M3, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64";
}

}  // namespace tempera::io
