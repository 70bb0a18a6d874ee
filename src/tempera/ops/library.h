#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tempera::ops {

// Defined beside the registrations, so that whatever calls an operator also links them, even out of
// an archive.
c10::OperatorHandle find_operator(const char* name);

}  // namespace tempera::ops
