#include "tempera/io/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tempera/base/error.h"

namespace tempera::io {
namespace {

using Json = nlohmann::json;

// Follows the parser through the few places a header has and throws at everything else. Each method
// is a callback of nlohmann's SAX interface.
class HeaderReader {
 public:
  HeaderReader(std::string_view where, Header& header) : where_(where), header_(header) {}

  bool start_object(size_t) {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTopValue && key_ == "__metadata__") {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTopValue) {
      place_ = Place::kTensor;
      tensor_ = HeaderTensor{.name = key_};
      has_dtype_ = has_shape_ = false;
      has_offsets_ = false;
      offsets_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) {
    if (place_ == Place::kTop) {
      TEMPERA_CHECK(names_.insert(name).second, where_, ": the name \"", name,
                    "\" appears twice in the header");
      key_ = name;
      place_ = Place::kTopValue;
    } else if (place_ == Place::kMetadata) {
      TEMPERA_CHECK(!header_.metadata.contains(name), where_, ": the metadata key \"", name,
                    "\" appears twice");
      key_ = name;
      place_ = Place::kMetadataValue;
    } else {
      tensor_key(name);
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadataValue) {
      header_.metadata.emplace(key_, value);
      place_ = Place::kMetadata;
    } else if (place_ == Place::kDType) {
      const auto dtype = find_dtype(value);
      TEMPERA_CHECK(dtype, where_, ": tensor \"", tensor_.name, "\" has the unknown dtype \"",
                    value, "\"; known are ", dtype_names());
      tensor_.dtype = *dtype;
      place_ = Place::kTensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItem;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItem;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ == Place::kShapeItem) {
      TEMPERA_CHECK(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), where_,
                    ": tensor \"", tensor_.name, "\" has a dimension of ", value,
                    ", which no memory can hold");
      TEMPERA_CHECK(tensor_.shape.size() < kMostDimensions, where_, ": tensor \"", tensor_.name,
                    "\" has more than ", kMostDimensions, " dimensions");
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::kOffsetItem) {
      TEMPERA_CHECK(offsets_.size() < 2, where_, ": tensor \"", tensor_.name,
                    "\" has more than two data_offsets");
      offsets_.push_back(value);
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOffsetItem)
      TEMPERA_CHECK(offsets_.size() == 2, where_, ": tensor \"", tensor_.name, "\" has ",
                    offsets_.size(), " data_offsets, two expected");
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(int64_t) { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) {
    return unexpected("a number that is no 64-bit integer");
  }
  bool binary(Json::binary_t&) { return unexpected("binary data"); }
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    throw Error(concat(where_, ": the header is not valid JSON: ", error.what()));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kDType,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetItem,
    kEnd,
  };

  void tensor_key(const std::string& name) {
    const auto once = [&](bool already) {
      TEMPERA_CHECK(!already, where_, ": tensor \"", tensor_.name, "\" has two entries \"", name,
                    "\"");
    };
    if (name == "dtype") {
      once(has_dtype_);
      has_dtype_ = true;
      place_ = Place::kDType;
    } else if (name == "shape") {
      once(has_shape_);
      has_shape_ = true;
      place_ = Place::kShape;
    } else if (name == "data_offsets") {
      once(has_offsets_);
      has_offsets_ = true;
      place_ = Place::kOffsets;
    } else {
      throw Error(concat(where_, ": tensor \"", tensor_.name, "\" has the unknown entry \"", name,
                         "\"; dtype, shape and data_offsets expected"));
    }
  }

  void finish_tensor() {
    const char* missing = !has_dtype_     ? "dtype"
                          : !has_shape_   ? "shape"
                          : !has_offsets_ ? "data_offsets"
                                          : nullptr;
    TEMPERA_CHECK(!missing, where_, ": tensor \"", tensor_.name, "\" has no ", missing);
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_.tensors.push_back(std::move(tensor_));
  }

  bool unexpected(std::string_view what) const {
    const bool inside = place_ != Place::kStart && place_ != Place::kTop;
    throw Error(concat(where_, ": the header has ", what, " where ", expected(), " is expected",
                       inside ? concat(", at \"", key_, "\"") : ""));
  }

  std::string_view expected() const {
    switch (place_) {
      case Place::kMetadataValue:
        return "a string of metadata";
      case Place::kDType:
        return "a dtype's name";
      case Place::kShape:
      case Place::kOffsets:
        return "an array";
      case Place::kShapeItem:
      case Place::kOffsetItem:
        return "a whole number from zero";
      default:
        return "an object";
    }
  }

  std::string_view where_;
  Header& header_;
  Place place_ = Place::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;
  HeaderTensor tensor_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::vector<uint64_t> offsets_;
};

}  // namespace

Header parse_header(std::string_view json, std::string_view where) {
  // The library takes a zero byte for the end of the text and would ignore what follows.
  TEMPERA_CHECK(json.find('\0') == json.npos, where,
                ": the header is not valid JSON: it holds a zero byte");
  Header header;
  HeaderReader reader(where, header);
  Json::sax_parse(json.begin(), json.end(), &reader);
  return header;
}

uint64_t tensor_bytes(std::string_view where, std::string_view name, DType dtype,
                      const std::vector<int64_t>& shape) {
  uint64_t bytes = dtype_size(dtype);
  for (const int64_t size : shape) {
    TEMPERA_CHECK(size >= 0, where, ": tensor \"", name, "\" has a dimension of ", size);
    TEMPERA_CHECK(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes), where,
                  ": tensor \"", name, "\" has a shape whose size overflows 64 bits");
  }
  return bytes;
}

}  // namespace tempera::io
