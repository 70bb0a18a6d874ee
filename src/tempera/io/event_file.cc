#include "tempera/io/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <type_traits>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/io/crc32c.h"

namespace tempera::io {
namespace {

// The numbers of the fields in TensorFlow's event.proto and summary.proto.
enum EventField : uint32_t {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSession = 7
};
enum SummaryField : uint32_t { kValue = 1 };
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2, kHistogram = 5 };
enum HistogramField : uint32_t {
  kMin = 1,
  kMax = 2,
  kCount = 3,
  kSum = 4,
  kSumOfSquares = 5,
  kLimits = 6,
  kCounts = 7
};
enum SessionField : uint32_t { kStatus = 1 };
constexpr uint64_t kStarted = 1;

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  static_assert(std::is_unsigned_v<Unsigned>);
  for (size_t byte = 0; byte < sizeof(value); ++byte)
    out.push_back(static_cast<char>((value >> (8 * byte)) & 0xffU));
}

// A message of Protocol Buffers, field by field.
class Message {
 public:
  Message& number(uint32_t field, double value) {
    key(field, 1);
    put_little_endian(bytes_, std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& number(uint32_t field, float value) {
    key(field, 5);
    put_little_endian(bytes_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& integer(uint32_t field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& text(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(uint32_t field, const Message& value) { return text(field, value.bytes_); }
  Message& list(uint32_t field, const std::vector<double>& values) {
    std::string packed;
    for (const double value : values) put_little_endian(packed, std::bit_cast<uint64_t>(value));
    return text(field, packed);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(uint32_t field, uint32_t wire) { varint((uint64_t{field} << 3U) | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U)
      bytes_.push_back(static_cast<char>((value & 0x7fU) | 0x80U));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

Message at(double wall_time, int64_t step) {
  Message event;
  event.number(kWallTime, wall_time).integer(kStep, static_cast<uint64_t>(step));
  return event;
}

Message message_of(const EventHistogram& histogram) {
  double count = 0;
  for (const double of_bucket : histogram.counts) count += of_bucket;
  Message message;
  message.number(kMin, histogram.least)
      .number(kMax, histogram.largest)
      .number(kCount, count)
      .number(kSum, histogram.sum)
      .number(kSumOfSquares, histogram.squares)
      .list(kLimits, histogram.limits)
      .list(kCounts, histogram.counts);
  return message;
}

Message message_of(const EventValue& value) {
  Message message;
  message.text(kTag, value.tag);
  if (const float* number = std::get_if<float>(&value.value))
    message.number(kSimpleValue, *number);
  else
    message.message(kHistogram, message_of(std::get<EventHistogram>(value.value)));
  return message;
}

// A checksum of bytes that hold checksums is a weak one; readers expect it changed.
uint32_t masked(uint32_t checksum) { return ((checksum >> 15U) | (checksum << 17U)) + 0xa282ead8U; }

}  // namespace

std::string encode_event(double wall_time, int64_t step, std::span<const EventValue> values) {
  Message summary;
  for (const EventValue& value : values) summary.message(kValue, message_of(value));
  return at(wall_time, step).message(kSummary, summary).bytes();
}

std::string encode_version(double wall_time) {
  return at(wall_time, 0).text(kFileVersion, "brain.Event:2").bytes();
}

std::string encode_restart(double wall_time, int64_t step) {
  Message session;
  session.integer(kStatus, kStarted);
  return at(wall_time, step).message(kSession, session).bytes();
}

std::string event_record(std::string_view event) {
  std::string record;
  put_little_endian(record, uint64_t{event.size()});
  put_little_endian(record, masked(crc32c(record)));
  record += event;
  put_little_endian(record, masked(crc32c(event)));
  return record;
}

EventFile::EventFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail();
}

EventFile::~EventFile() { ::close(descriptor_); }

void EventFile::fail() const {
  throw Error(
      concat("cannot write ", path_.string(), ": ", std::generic_category().message(errno)));
}

void EventFile::append(std::string_view event) {
  const std::string record = event_record(event);
  std::string_view left = record;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    left.remove_prefix(static_cast<size_t>(written));
  }
}

void EventFile::sync() {
  if (::fsync(descriptor_) != 0) fail();
}

}  // namespace tempera::io
