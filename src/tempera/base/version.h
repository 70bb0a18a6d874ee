#pragma once

namespace tempera {

// The version of the program, such as "1.2.3"; CMakeLists.txt has the number.
const char* version();

}  // namespace tempera
