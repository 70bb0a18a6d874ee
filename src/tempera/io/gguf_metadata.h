#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tempera::io {

// An array of one type. The alternatives stand in the order of the format's type numbers, without
// that of arrays: arrays of arrays are refused, as llama.cpp does.
using GgufArray = std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                               std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                               std::vector<float>, std::vector<bool>, std::vector<std::string>,
                               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;

// A value; its index is the format's number for its type. Texts are bytes: nothing promises UTF-8.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, GgufArray, uint64_t, int64_t, double>;

inline constexpr size_t kGgufArrayIndex = 9;

// "uint32", "array of 3 string", ...
std::string gguf_type_name(const GgufValue& value);

// What the file stores as it is comes back by reference: a vocabulary need not be copied.
template <class T>
using GgufResult =
    std::conditional_t<std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<bool>> ||
                           std::is_same_v<T, std::vector<std::string>>,
                       const T&, T>;

// Values by key, in the order of the file.
class GgufMetadata {
 public:
  using Entry = std::pair<std::string, GgufValue>;

  GgufMetadata() = default;
  // `where` names the file in messages.
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  // Throws when the key is there already.
  void add(std::string key, GgufValue value);

  const std::vector<Entry>& entries() const { return entries_; }
  // Null when there is none.
  const GgufValue* find(std::string_view key) const;

  // The value of a key as a T: int64_t, double, bool, std::string, or a std::vector of one of them.
  // Throws when there is none, or one of another kind. Files differ in the width and sign of their
  // integers and in the width of their floats, so each of the two is one kind; an integer above 63
  // bits is refused.
  template <class T>
  GgufResult<T> get(std::string_view key) const;
  // The same for a key that the file may leave out.
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return find(key) ? get<T>(key) : std::move(fallback);
  }

 private:
  const GgufValue& at(std::string_view key) const;

  std::string where_ = "GGUF";
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace tempera::io
