#include "tempera/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/io/gguf_layout.h"

namespace tempera::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the file's numbers are used as they are");

constexpr uint32_t kOldest = 2, kNewest = 3;

// Takes values from the front of the file; what is not there is an error.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, std::string_view where) : file_(file), where_(where) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }
  std::string_view where() const { return where_; }

  std::string_view bytes(uint64_t count, std::string_view what) {
    TEMPERA_CHECK(count <= left(), where_, ": the file is cut short or damaged: ", what, " of ",
                  count, " bytes at offset ", at_, ", only ", left(), " are left");
    const auto taken = file_.subspan(at_, count);
    at_ += count;
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, bytes(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(uint64_t most, std::string_view what) {
    const auto length = number<uint64_t>(what);
    TEMPERA_CHECK(length <= most, where_, ": ", what, " of ", length, " bytes at offset ", at_ - 8,
                  "; at most ", most, " expected");
    return bytes(length, what);
  }

  bool boolean(std::string_view what) {
    const auto value = number<uint8_t>(what);
    TEMPERA_CHECK(value <= 1, where_, ": ", what, " is the boolean ", int{value},
                  "; 0 or 1 expected");
    return value == 1;
  }

  // A number of entries that is not larger than what is left can hold.
  uint64_t count(uint64_t most, uint64_t least_bytes, std::string_view what) {
    const auto value = number<uint64_t>(what);
    TEMPERA_CHECK(value <= most, where_, ": ", value, " ", what, " announced; at most ", most,
                  " expected");
    TEMPERA_CHECK(value <= left() / least_bytes, where_, ": ", value, " ", what, " announced; the ",
                  left(), " bytes that follow cannot hold them");
    return value;
  }

 private:
  std::span<const std::byte> file_;
  std::string_view where_;
  uint64_t at_ = 0;
};

template <class T>
T read_item(Cursor& cursor, std::string_view what) {
  if constexpr (std::is_same_v<T, bool>) {
    return cursor.boolean(what);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return std::string(cursor.text(kMostValueBytes, what));
  } else {
    return cursor.number<T>(what);
  }
}

template <class T>
std::vector<T> read_items(Cursor& cursor, std::string_view what) {
  constexpr uint64_t kLeast = std::is_same_v<T, std::string> ? 8 : sizeof(T);
  const uint64_t count = cursor.count(kMostValueBytes / kLeast, kLeast, concat("items of ", what));
  std::vector<T> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) items.push_back(read_item<T>(cursor, what));
  return items;
}

// Calls f with an empty T for the type that stands at `index` in the variant.
template <class Variant, size_t index = 0, class F>
auto with_alternative(size_t wanted, const F& f) {
  if constexpr (index + 1 < std::variant_size_v<Variant>) {
    if (wanted != index) return with_alternative<Variant, index + 1>(wanted, f);
  }
  return f(std::type_identity<std::variant_alternative_t<index, Variant>>{});
}

GgufArray read_array(Cursor& cursor, std::string_view what) {
  const auto type = cursor.number<uint32_t>(what);
  TEMPERA_CHECK(type < std::variant_size_v<GgufValue>, cursor.where(), ": ", what,
                " is an array of the unknown type ", type);
  TEMPERA_CHECK(type != kGgufArrayIndex, cursor.where(), ": ", what,
                " is an array of arrays, which is not supported");
  return with_alternative<GgufArray>(type - (type > kGgufArrayIndex ? 1 : 0),
                                     [&]<class T>(std::type_identity<T>) -> GgufArray {
                                       return read_items<typename T::value_type>(cursor, what);
                                     });
}

GgufValue read_value(Cursor& cursor, std::string_view what) {
  const auto type = cursor.number<uint32_t>(what);
  TEMPERA_CHECK(type < std::variant_size_v<GgufValue>, cursor.where(), ": ", what,
                " has the unknown type ", type);
  return with_alternative<GgufValue>(type, [&]<class T>(std::type_identity<T>) -> GgufValue {
    if constexpr (std::is_same_v<T, GgufArray>) {
      return read_array(cursor, what);
    } else {
      return read_item<T>(cursor, what);
    }
  });
}

void read_metadata(Cursor& cursor, uint64_t count, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string key(cursor.text(kMostNameBytes, "a metadata key"));
    const std::string what = concat("metadata key \"", key, "\"");
    GgufValue value = read_value(cursor, what);
    metadata.add(std::move(key), std::move(value));
  }
}

struct Placed {
  GgufTensor tensor;
  uint64_t begin = 0, end = 0;  // relative to the data
};

Placed read_tensor(Cursor& cursor) {
  Placed placed;
  placed.tensor.name = cursor.text(kMostNameBytes, "a tensor's name");
  const std::string what = concat(cursor.where(), ": tensor \"", placed.tensor.name, "\"");
  const auto dimensions = cursor.number<uint32_t>("a number of dimensions");
  TEMPERA_CHECK(dimensions <= kMostGgufDimensions, what, " has ", dimensions,
                " dimensions; at most ", kMostGgufDimensions, " expected");
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.number<uint64_t>("a dimension");
    TEMPERA_CHECK(std::in_range<int64_t>(size), what, " has a dimension of ", size,
                  ", which no memory can hold");
    placed.tensor.shape.insert(placed.tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = cursor.number<uint32_t>("a tensor's type");
  const GgmlTypeInfo* info = find_ggml_type(type);
  TEMPERA_CHECK(info, what, " has the unknown type ", type);
  placed.tensor.type = info->type;
  placed.begin = cursor.number<uint64_t>("a tensor's offset");
  const uint64_t bytes = ggml_bytes(info->type, placed.tensor.shape, what);
  TEMPERA_CHECK(!__builtin_add_overflow(placed.begin, bytes, &placed.end), what, " at offset ",
                placed.begin, " with ", bytes, " bytes ends beyond 64 bits");
  return placed;
}

bool by_name(const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; }

void check_names(std::span<const GgufTensor> sorted, std::string_view where) {
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(),
                         [](const GgufTensor& a, const GgufTensor& b) { return a.name == b.name; });
  TEMPERA_CHECK(twice == sorted.end(), where, ": two tensors named \"", twice->name, "\"");
}

// Every byte of the data belongs to one tensor or pads to the next multiple of the alignment.
// llama.cpp asks for the same; a flipped bit in an offset or a shape shows here.
void check_layout(std::vector<Placed>& tensors, uint64_t data_bytes, uint64_t alignment,
                  std::string_view where) {
  std::sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  const GgufTensor* previous = nullptr;
  for (const Placed& placed : tensors) {
    const std::string& name = placed.tensor.name;
    TEMPERA_CHECK(placed.begin % alignment == 0, where, ": tensor \"", name, "\" is at offset ",
                  placed.begin, ", no multiple of the alignment ", alignment);
    TEMPERA_CHECK(placed.begin >= at, where, ": tensor \"", name, "\" overlaps \"",
                  previous ? previous->name : "", "\": it begins at ", placed.begin,
                  ", the other ends at ", at);
    TEMPERA_CHECK(placed.begin - at < alignment, where, ": a hole of ", placed.begin - at,
                  " bytes before tensor \"", name, "\"");
    at = placed.end;
    previous = &placed.tensor;
  }
  TEMPERA_CHECK(at <= data_bytes, where, ": the file is cut short: its tensors need ", at,
                " bytes, ", data_bytes, " are there");
  TEMPERA_CHECK(data_bytes - at < alignment, where, ": ", data_bytes - at,
                " bytes follow the last tensor");
}

void check_start(Cursor& cursor) {
  const std::string_view where = cursor.where();
  TEMPERA_CHECK(cursor.left() >= 24, where, ": ", cursor.left(),
                " bytes; a GGUF file has at least 24");
  TEMPERA_CHECK(cursor.bytes(kGgufMagic.size(), "the file's mark") == kGgufMagic, where,
                ": does not begin with \"", kGgufMagic, "\"; is this a GGUF file?");
  const auto version = cursor.number<uint32_t>("a version");
  TEMPERA_CHECK((version & 0xffff) != 0 || version == 0, where,
                ": the file is big-endian; convert it with gguf-convert-endian of the Python "
                "package gguf");
  TEMPERA_CHECK(version >= kOldest && version <= kNewest, where, ": GGUF version ", version, "; ",
                kOldest, " or ", kNewest, " expected");
}

}  // namespace

uint64_t gguf_alignment(const GgufMetadata& metadata, std::string_view where) {
  const GgufValue* value = metadata.find(kAlignmentKey);
  if (!value) return kDefaultAlignment;
  const auto* alignment = std::get_if<uint32_t>(value);
  TEMPERA_CHECK(alignment, where, ": ", kAlignmentKey, " has the type ", gguf_type_name(*value),
                "; uint32 expected");
  TEMPERA_CHECK(std::has_single_bit(*alignment), where, ": ", kAlignmentKey, " is ", *alignment,
                "; a power of two expected");
  return *alignment;
}

uint64_t align_up(uint64_t value, uint64_t alignment, std::string_view where) {
  TEMPERA_CHECK(value <= std::numeric_limits<uint64_t>::max() - (alignment - 1), where,
                ": the tensors end beyond 64 bits");
  return (value + alignment - 1) & ~(alignment - 1);
}

GgufContents parse_gguf(std::span<const std::byte> file, std::string_view where) {
  Cursor cursor(file, where);
  check_start(cursor);
  // The least bytes: lengths and types, without a byte of a name.
  const uint64_t tensor_count = cursor.count(kMostEntries, 8 + 4 + 4 + 8, "tensors");
  const uint64_t key_count = cursor.count(kMostEntries, 8 + 4 + 1, "metadata keys");
  GgufContents contents{.tensors = {}, .metadata = GgufMetadata(std::string(where))};
  read_metadata(cursor, key_count, contents.metadata);
  const uint64_t alignment = gguf_alignment(contents.metadata, where);
  std::vector<Placed> placed;
  for (uint64_t i = 0; i < tensor_count; ++i) placed.push_back(read_tensor(cursor));

  // A file without tensors may end before the data would begin.
  const uint64_t start = align_up(cursor.position(), alignment, where);
  const auto data = file.subspan(std::min<uint64_t>(start, file.size()));
  check_layout(placed, data.size(), alignment, where);
  contents.tensors.reserve(placed.size());
  for (Placed& each : placed) {
    each.tensor.bytes = data.subspan(each.begin, each.end - each.begin);
    contents.tensors.push_back(std::move(each.tensor));
  }
  std::sort(contents.tensors.begin(), contents.tensors.end(), by_name);
  check_names(contents.tensors, where);
  return contents;
}

}  // namespace tempera::io
