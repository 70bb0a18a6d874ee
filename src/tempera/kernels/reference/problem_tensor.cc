#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tempera/base/error.h"
#include "tempera/kernels/reference/problem.h"

namespace tempera::kernels {
namespace {

constexpr int64_t kGuard = 64;  // elements
constexpr uintptr_t kAlignment = 64;
constexpr int kPoison = 0xFF;  // all bits set: a NaN in every floating-point type

uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class T>
Rows<T> layout_strides(const Extent& e, LayoutCase layout) {
  Rows<T> strides;
  switch (layout) {
    case LayoutCase::kHeadsFirst:
      strides.row = e.size;
      strides.head = e.rows * strides.row;
      strides.batch = e.heads * strides.head;
      break;
    case LayoutCase::kRowsFirst:
      strides.head = e.size;
      strides.row = e.heads * strides.head;
      strides.batch = e.rows * strides.row;
      break;
    case LayoutCase::kPadded:
      strides.row = e.size + 3;
      strides.head = e.rows * strides.row + 5;
      strides.batch = e.heads * strides.head + 7;
      break;
  }
  return strides;
}

template <class T>
bool poisoned(const T& element) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &element, sizeof(T));
  return std::all_of(std::begin(bytes), std::end(bytes), [](int byte) { return byte == kPoison; });
}

}  // namespace

template <>
double from_double<double>(double value) {
  return value;
}
template <>
float from_double<float>(double value) {
  return static_cast<float>(value);
}
template <>
BFloat16 from_double<BFloat16>(double value) {
  const uint32_t bits = float_bits(static_cast<float>(value));
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};  // NaN
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}
template <>
int8_t from_double<int8_t>(double value) {
  return static_cast<int8_t>(std::clamp(std::nearbyint(value), -127.0, 127.0));
}
template <>
double to_double<int8_t>(int8_t value) {
  return value;
}
template <>
double to_double<double>(double value) {
  return value;
}
template <>
double to_double<float>(float value) {
  return static_cast<double>(value);
}
template <>
double to_double<BFloat16>(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return static_cast<double>(result);
}

template <class T>
Tensor<T>::Tensor(const Extent& extent, LayoutCase layout, int64_t offset)
    : extent_(extent), strides_(layout_strides<T>(extent, layout)) {
  const int64_t slack = static_cast<int64_t>(kAlignment / sizeof(T)) + offset;
  memory_.resize(static_cast<size_t>(2 * kGuard + slack + extent.batch * strides_.batch));
  const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kGuard);
  const uintptr_t up = (kAlignment - address % kAlignment) % kAlignment;
  first_ = kGuard + static_cast<int64_t>(up / sizeof(T)) + offset;
  poison();
}

template <class T>
int64_t Tensor<T>::position(int64_t index) const {
  const int64_t column = index % extent_.size;
  const int64_t row = index / extent_.size % extent_.rows;
  const int64_t head = index / extent_.size / extent_.rows % extent_.heads;
  const int64_t batch = index / extent_.size / extent_.rows / extent_.heads;
  return first_ + batch * strides_.batch + head * strides_.head + row * strides_.row + column;
}

template <class T>
T& Tensor<T>::at(int64_t index) {
  return memory_[static_cast<size_t>(position(index))];
}

template <class T>
void Tensor<T>::fill(const std::vector<double>& values) {
  TEMPERA_CHECK(static_cast<int64_t>(values.size()) == extent_.count(), "a tensor of ",
                extent_.count(), " elements is filled with ", values.size());
  for (int64_t i = 0; i < extent_.count(); ++i)
    at(i) = from_double<T>(values[static_cast<size_t>(i)]);
}

template <class T>
std::vector<double> Tensor<T>::values() const {
  std::vector<double> values;
  for (int64_t i = 0; i < extent_.count(); ++i)
    values.push_back(to_double(memory_[static_cast<size_t>(position(i))]));
  return values;
}

template <class T>
void Tensor<T>::poison() {
  std::memset(static_cast<void*>(memory_.data()), kPoison, memory_.size() * sizeof(T));
}

template <class T>
bool Tensor<T>::guards_intact() const {
  std::vector<bool> element(memory_.size());
  for (int64_t i = 0; i < extent_.count(); ++i) element[static_cast<size_t>(position(i))] = true;
  for (size_t i = 0; i < memory_.size(); ++i)
    if (!element[i] && !poisoned(memory_[i])) return false;
  return true;
}

template class Tensor<double>;
template class Tensor<float>;
template class Tensor<BFloat16>;
template class Tensor<int8_t>;

}  // namespace tempera::kernels
