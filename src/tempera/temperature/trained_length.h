#pragma once

#include "tempera/base/error.h"
#include "tempera/temperature/registry.h"

// The option `length` of methods that act past the length that a model is trained at.
namespace tempera {

inline config::Declaration trained_length_option() {
  return {.name = "length",
          .value = int64_t{0},
          .help = "L; 0: the length that the model is trained at",
          .domain = config::range(0, 1e12)};
}

inline int64_t trained_length(const char* method, const LayerShape& shape,
                              const MethodOptions& options, int64_t least) {
  const int64_t given = int_option(options, "length");
  const int64_t length = given > 0 ? given : shape.trained_length;
  TEMPERA_CHECK(length >= least, "the method '", method,
                "' needs the length that the model is trained at, at least ", least,
                ": set its option 'length'");
  return length;
}

}  // namespace tempera
