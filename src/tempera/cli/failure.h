#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "tempera/config/options.h"

namespace tempera::cli {

// An error of torch in words for a user: without the frames of its stack and, where memory ran out,
// with the options of the verb that lower what is needed.
std::string torch_failure(const c10::Error& error, const config::Options& options);

}  // namespace tempera::cli
